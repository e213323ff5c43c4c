# Erlang: a JIT that runs from one view of a memfd and writes through another; processes, messages, a
# gen_server, ets, code that is loaded again, ports, exceptions.
# needs: erl
# timeout: 180
export HOME=$PWD
cat >work.erl <<'X'
-module(work).
-behaviour(gen_server).
-export([main/0, init/1, handle_call/3, handle_cast/2, ring/2]).
init(N) -> {ok, N}.
handle_call(get, _, N) -> {reply, N, N};
handle_call(crash, _, _) -> error(asked_for).
handle_cast({add, K}, N) -> {noreply, N + K}.
ring(Next, 0) -> Next ! done;
ring(Next, N) -> receive M -> Next ! M + 1, ring(Next, N - 1) end.
fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).
% A module that is made, loaded, called, and replaced, again and again.
load(N) ->
    Forms = [{attribute, 1, module, made}, {attribute, 2, export, [{f, 1}]},
             {function, 3, f, 1, [{clause, 3, [{var, 3, 'X'}], [], [{op, 3, '+', {var, 3, 'X'}, {integer, 3, N}}]}]}],
    {ok, made, Code} = compile:forms(Forms),
    {module, made} = code:load_binary(made, "made.erl", Code),
    code:purge(made),
    made:f(1).
main() ->
    io:format("fib ~p~n", [fib(20)]),
    Self = self(),
    Pids = [spawn(fun() -> receive {From, X} -> From ! X * X end end) || _ <- lists:seq(1, 2000)],
    [P ! {Self, N} || {P, N} <- lists:zip(Pids, lists:seq(1, 2000))],
    Sum = lists:sum([receive X -> X end || _ <- Pids]),
    io:format("squares ~p~n", [Sum]),
    First = lists:foldl(fun(_, Next) -> spawn(work, ring, [Next, 1]) end, Self, lists:seq(1, 500)),
    First ! 0,
    io:format("ring ~p~n", [receive R when is_integer(R) -> R end]),
    {ok, Server} = gen_server:start(work, 5, []),
    [gen_server:cast(Server, {add, N}) || N <- lists:seq(1, 1000)],
    io:format("server ~p~n", [gen_server:call(Server, get)]),
    logger:set_primary_config(level, none),
    io:format("crash ~p~n", [try gen_server:call(Server, crash) catch exit:{{Why, _}, _} -> Why end]),
    T = ets:new(t, [ordered_set, public]),
    Writers = [spawn_monitor(fun() -> [ets:insert(T, {{W, K}, K * W}) || K <- lists:seq(1, 300)] end) || W <- lists:seq(1, 4)],
    [receive {'DOWN', Ref, process, _, Reason} -> normal = Reason end || {_, Ref} <- Writers],
    io:format("ets ~p ~p~n", [ets:info(T, size), ets:foldl(fun({_, V}, A) -> A + V end, 0, T)]),
    io:format("loaded ~p~n", [[load(N) || N <- lists:seq(1, 6)]]),
    B = << <<(N * N):16>> || N <- lists:seq(1, 1000) >>,
    io:format("binary ~p ~p~n", [byte_size(B), erlang:crc32(B)]),
    io:format("port ~s", [os:cmd("echo from a port")]),
    io:format("timer ~p~n", [receive never -> 1 after 5 -> late end]),
    io:format("caught ~p~n", [[element(1, element(2, catch 1 div zero(N))) || N <- [1, 2]]]),
    halt(3).
zero(N) -> N - N.
X
erl -noshell -eval 'halt().'
erlc work.erl
erl -noshell -s work main || echo "status $?"
