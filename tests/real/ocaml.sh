# OCaml: native code and byte code, exceptions, the collector.
# needs: ocamlopt ocamlc
# run: long
# timeout: 120
cat >work.ml <<'X'
module M = Map.Make (Int)
exception Planned of int
let rec deep n = if n = 0 then raise (Planned 3) else 1 + deep (n - 1)
let () =
  let m = ref M.empty in
  for i = 1 to 20000 do m := M.add i (i * i) !m done;
  Gc.full_major ();
  Printf.printf "%d\n" (M.fold (fun _ v a -> v + a) !m 0);
  (try ignore (deep 1000) with Planned n -> Printf.printf "planned %d\n" n);
  let rec forever n = 1 + forever (n + 1) in
  (try ignore (forever 0) with Stack_overflow -> print_endline "stack overflow")
X
ocamlopt work.ml -o work && ./work
ocamlc work.ml -o bytes && ocamlrun bytes
rm -f work bytes work.cm* work.o
