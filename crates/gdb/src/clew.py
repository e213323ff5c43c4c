# clew's own commands in gdb, and what makes gdb at home in a recording.
#
# In: the program's replies to `monitor`. Out: commands below `clew`. The line in front of this says
# where the recorded files are linked (ROOT).

import os

import gdb

# What the user wants of scripts for libraries; from here on gdb loads none by itself.
SCRIPTS = gdb.parameter("auto-load python-scripts")

RUST = "gdb_load_rust_pretty_printers.py"

# What `monitor` answers when the program will go somewhere the next time it is resumed.
GO = "clew: type stepi to go there"


def monitor(line):
    command = "monitor " + line
    answer = gdb.execute(command, to_string=True)
    # With `set trace-commands on`, gdb puts the command in front of what it answers.
    first, _, rest = answer.partition("\n")
    if first.startswith("+") and first.lstrip("+") == command:
        return rest
    return answer


def asked(line):
    """What a command tells; what is wrong with it is an error."""
    answer = monitor(line)
    if answer.startswith("clew: "):
        raise gdb.GdbError(answer[len("clew: "):].strip())
    return answer


def move(line):
    """Goes where the program is told to, so that gdb notices: as the answer to a step."""
    answer = monitor(line)
    if answer.strip() != GO:
        raise gdb.GdbError(answer.replace("clew: ", "", 1).strip())
    gdb.execute("stepi")
    refresh_watchpoints()


def refresh_watchpoints():
    """gdb compares with the value that it saw last, which was elsewhere: let it look again."""
    kinds = [
        getattr(gdb, name)
        for name in ("BP_WATCHPOINT", "BP_HARDWARE_WATCHPOINT", "BP_ACCESS_WATCHPOINT")
        if hasattr(gdb, name)
    ]
    for point in gdb.breakpoints() or ():
        if point.type not in kinds or not point.enabled:
            continue
        try:
            gdb.parse_and_eval(point.expression)
        except gdb.error:
            # A local variable of another frame: gdb would delete the watchpoint.
            continue
        point.enabled = False
        point.enabled = True


class Command(gdb.Command):
    """A command whose errors are gdb's own kind: a line, without a word about Python."""

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        try:
            self.do(argument.strip())
        except gdb.error as error:
            raise gdb.GdbError(str(error))
        except KeyboardInterrupt:
            raise gdb.GdbError("Quit")


class Clew(gdb.Command):
    """Commands for recordings: where this is, and how to go elsewhere.
A position is written EVENT, EVENT+TICKS or EVENT+TICKS+STEPS."""

    def __init__(self):
        super().__init__("clew", gdb.COMMAND_RUNNING, gdb.COMPLETE_NONE, True)


class Attach(Command):
    """Connect to the recording, if that was interrupted.
Usage: clew attach [SOCKET]"""

    def __init__(self):
        super().__init__("clew attach", gdb.COMMAND_RUNNING, gdb.COMPLETE_FILENAME)
        self.socket = None

    def do(self, argument):
        self.socket = argument or self.socket
        if self.socket is None:
            raise gdb.GdbError("clew attach takes the socket of a clew debug --serve")
        try:
            told = gdb.execute("target extended-remote " + self.socket, to_string=True)
            answer = monitor("hello")
        except (gdb.error, KeyboardInterrupt) as error:
            why = str(error) or "interrupted"
            raise gdb.GdbError("clew: not connected to the recording: %s; clew attach connects" % why)
        if answer.strip() != GO:
            gdb.write(told)
        else:
            # Where it stands now isn't where anybody wants to be.
            kept = ("Reading symbols", "warning:", "(No debugging")
            gdb.write("".join(line for line in told.splitlines(True) if line.startswith(kept)))
            gdb.execute("stepi")
            answer = monitor("hello")
        gdb.write(answer)


class Told(Command):
    """A command that only tells something."""

    def __init__(self, name, text, takes=False):
        self.__doc__ = text
        self.name = name
        self.takes = takes
        super().__init__("clew " + name, gdb.COMMAND_STATUS, gdb.COMPLETE_NONE)

    def do(self, argument):
        if argument and not self.takes:
            raise gdb.GdbError("clew %s takes no argument" % self.name)
        gdb.write(asked((self.name + " " + argument).strip()))


class Seek(Command):
    """Go to a position, forwards or backwards.
Usage: clew seek POSITION | start | end | tick:N | mark:NAME | BOOKMARK
clew when tells positions; clew dump's event numbers are positions too."""

    def __init__(self):
        super().__init__("clew seek", gdb.COMMAND_RUNNING)

    def do(self, argument):
        move("seek " + argument)

    def complete(self, text, word):
        marks = [line.split()[0] for line in monitor("bookmarks").splitlines() if line]
        return [name for name in ["start", "end"] + marks if name.startswith(text)]


class Last(Command):
    """Go back to the last change of a value: to just before the instruction that made it.
Usage: clew last EXPRESSION
The expression must be in memory: a variable, an element, what a pointer points to."""

    def __init__(self):
        super().__init__("clew last", gdb.COMMAND_RUNNING, gdb.COMPLETE_EXPRESSION)

    def do(self, argument):
        if not argument:
            raise gdb.GdbError("clew last takes an expression")
        value = gdb.parse_and_eval(argument)
        if value.type.strip_typedefs().code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            value = value.referenced_value()
        if value.address is None:
            raise gdb.GdbError(
                "%s isn't in memory here, so its changes can't be watched" % argument
            )
        after = shown(value)
        place = value.address
        move("last %#x %d" % (int(place), value.type.sizeof))
        before = shown(place.dereference())
        if before != after:
            gdb.write("%s: %s here, then %s\n" % (argument, before, after))


def shown(value):
    try:
        return value.format_string(max_elements=8)
    except gdb.error as error:
        return "<%s>" % error


def whose():
    """The thread and frame that the user has chosen, as `monitor` takes it."""
    thread = gdb.selected_thread()
    if thread is None:
        return ""
    tid = thread.ptid[1] or thread.ptid[0]
    try:
        level = gdb.selected_frame().level()
    except gdb.error:
        level = 0
    return "@%d.%d " % (tid, level)


class Writes(Command):
    """List all changes of a variable, over the whole recording or the call that it belongs to.
Usage: clew writes EXPRESSION [-n N]"""

    def __init__(self):
        super().__init__("clew writes", gdb.COMMAND_STATUS, gdb.COMPLETE_EXPRESSION)

    def do(self, argument):
        gdb.write(asked("writes " + whose() + argument))


def placed(argument):
    """An expression as the bytes that it is in; what is none of gdb's stays as it is."""
    if not argument or argument.startswith("$"):
        return argument
    value = gdb.parse_and_eval(argument)
    if value.type.strip_typedefs().code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        value = value.referenced_value()
    if value.address is None:
        raise gdb.GdbError(
            "%s isn't in memory here; ask for a register, as $rax, or a variable that it comes from" % argument
        )
    gdb.write("%s = %s\n" % (argument, shown(value)))
    return "*%#x:%d" % (int(value.address), value.type.sizeof)


class Origin(Command):
    """Tell where a value comes from: back through moves, threads and system calls to where it was made.
Usage: clew origin EXPRESSION | $REGISTER"""

    def __init__(self):
        super().__init__("clew origin", gdb.COMMAND_STATUS, gdb.COMPLETE_EXPRESSION)

    def do(self, argument):
        gdb.write(asked("origin " + placed(argument)))


class Slice(Command):
    """Tell all that a value depends on, or what failed, and go along it: the program stands at each statement.
Usage: clew slice [EXPRESSION | $REGISTER]
       clew slice up | down [N] | next [N] | prev [N] | list | NUMBER
up goes to the statement that uses this one, down to one that it uses, next to the older one in the list."""

    WORDS = ("up", "down", "next", "prev", "list")

    def __init__(self):
        super().__init__("clew slice", gdb.COMMAND_RUNNING, gdb.COMPLETE_EXPRESSION)

    def do(self, argument):
        first = argument.split(None, 1)[0] if argument else ""
        if first not in self.WORDS and not first.isdecimal():
            argument = placed(argument)
        answer = asked("slice " + argument)
        where, _, text = answer.partition("\n")
        if where.startswith("at "):
            gdb.write(text)
            move("seek " + where[3:])
        else:
            gdb.write(answer)


class Order(Command):
    """A command about the order of threads: it tells something, or goes somewhere, perhaps in another order."""

    def __init__(self, name, text):
        self.__doc__ = text
        self.name = name
        super().__init__("clew " + name, gdb.COMMAND_RUNNING, gdb.COMPLETE_NONE)

    def do(self, argument):
        answer = asked((self.name + " " + argument).strip())
        where, _, text = answer.partition("\n")
        if where.startswith("at "):
            gdb.write(text)
            move("seek " + where[3:])
        else:
            gdb.write(answer)


class Line(Command):
    """A step from line to line that clew makes: one search, however often a loop on the line runs."""

    def __init__(self, name, text):
        self.__doc__ = text + "\nUsage: clew %s [N]\nIt is one search, however long the line takes." % name
        self.name = name
        super().__init__("clew " + name, gdb.COMMAND_RUNNING, gdb.COMPLETE_NONE)

    def do(self, argument):
        if argument and not argument.isdecimal():
            raise gdb.GdbError("clew %s takes a number" % self.name)
        for _ in range(int(argument or 1)):
            move(self.name + " " + whose())


class WatchTransition(Command):
    """Go to the instruction where an expression becomes true, or stops being true.
Usage: clew watch-transition EXPRESSION
A C expression over the program's variables, which may call its functions; they run in a copy. It must
be true at one end of the recording and false at the other."""

    def __init__(self):
        super().__init__("clew watch-transition", gdb.COMMAND_RUNNING, gdb.COMPLETE_EXPRESSION)

    def do(self, argument):
        move("transition " + argument)


class Back(Command):
    """Drop what was changed: from here on it is as it was recorded."""

    def __init__(self):
        super().__init__("clew back", gdb.COMMAND_RUNNING, gdb.COMPLETE_NONE)

    def do(self, argument):
        move("back")


# gdb's checkpoints are forks of the program; here a place in the recording is one, under this name.
CHECKPOINT = "checkpoint-"


def checkpoints():
    """The numbers of those that there are, and their positions."""
    lines = (line.split() for line in monitor("bookmarks").splitlines())
    found = [(line[0][len(CHECKPOINT):], line[1]) for line in lines if line[:1] and line[0].startswith(CHECKPOINT)]
    return sorted((int(number), position) for number, position in found if number.isdecimal())


def checkpoint(argument):
    """The name of the checkpoint with this number."""
    known = [number for number, _ in checkpoints()]
    if not argument.isdecimal() or int(argument) not in known:
        raise gdb.GdbError("there is no checkpoint %s; info checkpoints lists them" % argument)
    return CHECKPOINT + str(int(argument))


class Checkpoint(Command):
    """Remember this place of the recording: restart N comes back to it.
It is a bookmark (clew bookmarks lists them); no process is kept for it."""

    def __init__(self):
        super().__init__("checkpoint", gdb.COMMAND_OBSCURE, gdb.COMPLETE_NONE)
        self.last = 0

    def do(self, argument):
        self.last += 1
        told = asked("bookmark %s%d" % (CHECKPOINT, self.last))
        gdb.write("Checkpoint %d: %s" % (self.last, told.partition(": ")[2]))


class Restart(Command):
    """Go to a checkpoint.
Usage: restart N"""

    def __init__(self):
        super().__init__("restart", gdb.COMMAND_OBSCURE, gdb.COMPLETE_NONE)

    def do(self, argument):
        move("seek " + checkpoint(argument))


class InfoCheckpoints(Command):
    """List the checkpoints: places of the recording."""

    def __init__(self):
        super().__init__("info checkpoints", gdb.COMMAND_OBSCURE, gdb.COMPLETE_NONE)

    def do(self, argument):
        all = checkpoints()
        for number, position in all:
            gdb.write("%d  %s\n" % (number, position))
        if not all:
            gdb.write("No checkpoints.\n")


class DeleteCheckpoint(Command):
    """Forget a checkpoint.
Usage: delete checkpoint N"""

    def __init__(self):
        super().__init__("delete checkpoint", gdb.COMMAND_OBSCURE, gdb.COMPLETE_NONE)

    def do(self, argument):
        asked("forget " + checkpoint(argument))


class Refused(Command):
    """A command of gdb's that has no meaning here."""

    def __init__(self, name, why):
        self.__doc__ = "Not for recordings: %s." % why
        self.why = why
        super().__init__(name, gdb.COMMAND_OBSCURE, gdb.COMPLETE_NONE)

    def do(self, argument):
        raise gdb.GdbError(self.why)


RECORDED = (
    "clew: this program is recorded already, from beginning to end; reverse-continue, reverse-step "
    "and the like work without record (help clew shows more)"
)

Clew()
Attach()
Checkpoint()
Restart()
InfoCheckpoints()
DeleteCheckpoint()
Refused("record", RECORDED)
Refused("info record", RECORDED)
Told("when", "Tell the position, the thread that runs here, and what happens next.")
Told(
    "events",
    "Show events around here; the one marked > happens next.\nUsage: clew events [N]",
    takes=True,
)
Told("bookmark", "Give this position a name.\nUsage: clew bookmark NAME", takes=True)
Told("bookmarks", "List the bookmarks, in order of their positions.")
Told("threads", "List the threads, and what they wait for.")
Told(
    "excursion",
    "Run on from here in a copy that follows no recording.\n"
    "continue and step then run the copy, with what was changed in it; clew back drops it.",
)
Told(
    "calls",
    "List all calls of a function over the whole recording, with arguments and results.\n"
    "Usage: clew calls FUNCTION [-n N]",
    takes=True,
)
Told(
    "output",
    "List all that was written to standard output and error, with positions.\nUsage: clew output [N]",
    takes=True,
)
Told(
    "probe",
    "Run C statements at places of the replay, which stays what was recorded.\n"
    "Usage: clew probe add PLACE STATEMENTS, clew probe list, clew probe delete N, clew probe run\n"
    "PLACE is FILE:LINE, FUNCTION or FUNCTION$; each line that is printed has its position for clew seek.",
    takes=True,
)
Order(
    "minima",
    "Go on in the order in which this thread comes first: of the others, only what it needs is executed.\n"
    "Usage: clew minima [THREAD]\nclew order goes back to the order that was recorded.",
)
Order(
    "maxima",
    "Go on in the order in which all others come first, as far as they do without this thread.\n"
    "Usage: clew maxima [THREAD]\nclew order goes back to the order that was recorded.",
)
Order(
    "order",
    "Go back to the order that was recorded; or tell what each thread does next.\nUsage: clew order [table]",
)
Order(
    "lc-break",
    "Go to where a thread's Lamport clock reaches N.\nUsage: clew lc-break N | THREAD:N",
)
Order(
    "proceed",
    "Let a thread do its next event now; if another must come first, that is told.\nUsage: clew proceed THREAD",
)
Order("event", "Go to the next or the last event of this thread.\nUsage: clew event next | prev")
Writes()
Origin()
Slice()
Line("next", "Go to the next line of this function, over calls.")
Line("reverse-next", "Go back to the line before, over calls.")
Line("step", "Go to the next line, into calls.")
Line("reverse-step", "Go back to the line before, into calls.")
Line("finish", "Go to where this function returns to.")
Line("reverse-finish", "Go back to where this function was called.")
Seek()
Last()
WatchTransition()
Back()


class Notice:
    """Says once, at each place, that changes aren't made to the recording."""

    def __init__(self):
        self.said = False
        gdb.events.memory_changed.connect(self.changed)
        gdb.events.register_changed.connect(self.changed)
        gdb.events.stop.connect(self.stopped)

    def changed(self, event):
        if not self.said:
            self.said = True
            gdb.write("[clew: in a copy; when the program moves on, it is as it was recorded]\n")

    def stopped(self, event):
        self.said = False


Notice()


class Placed:
    """A library, by the path that it had."""

    def __init__(self, objfile, filename):
        self.objfile = objfile
        self.filename = filename

    def __getattr__(self, name):
        return getattr(self.objfile, name)


class Printers:
    """Loads the scripts that gdb keeps for libraries; it looks for them by the library's own path, and
    here that has ROOT in front of it."""

    def __init__(self):
        gdb.events.new_objfile.connect(self.on_new)

    def on_new(self, event):
        names = [event.new_objfile.username, event.new_objfile.filename]
        name = next((name for name in names if name and name.startswith(ROOT + "/")), None)
        if name is None or not SCRIPTS:
            return
        path = name[len(ROOT):]
        for path in {os.path.realpath(path), path}:
            for folder in self.folders("auto-load scripts-directory"):
                script = folder + path + "-gdb.py"
                if os.path.isfile(script) and self.is_safe(script, folder):
                    self.load(script, Placed(event.new_objfile, path))
        # rust-gdb names the folder of its printers as one of sources, and programs name the script. Theirs could be
        # any; this one is the toolchain's.
        for folder in self.folders("directories"):
            script = os.path.join(folder, RUST)
            if not folder.startswith("$") and os.path.isfile(script) and self.is_safe(script, folder):
                self.load(script, event.new_objfile)

    def load(self, script, objfile):
        # A script asks for the library that it is loaded for, and looks for its modules from there.
        current = gdb.current_objfile
        gdb.current_objfile = lambda: objfile
        try:
            gdb.execute("source " + script)
        except gdb.error as error:
            gdb.write("clew: %s: %s\n" % (script, error), gdb.STDERR)
        finally:
            gdb.current_objfile = current

    def folders(self, parameter):
        names = {
            "$debugdir": gdb.parameter("debug-file-directory"),
            "$datadir": gdb.parameter("data-directory"),
        }
        for folder in (gdb.parameter(parameter) or "").split(":"):
            for name, value in names.items():
                if folder == name or folder.startswith(name + "/"):
                    folder = (value or "") + folder[len(name):]
            if folder:
                yield folder.rstrip("/")

    def is_safe(self, script, folder):
        """A library's path may be made up, with .. in it: the script must be the user's own."""
        script = os.path.realpath(script)

        def below(folder):
            return script.startswith(os.path.realpath(folder).rstrip("/") + "/")

        safe = any(below(folder) for folder in self.folders("auto-load safe-path"))
        return safe and below(folder) and not below(ROOT)


Printers()
