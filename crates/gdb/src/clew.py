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
    return gdb.execute("monitor " + line, to_string=True)


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


class Clew(gdb.Command):
    """Commands for recordings: where this is, and how to go elsewhere.
A position is written EVENT, EVENT+TICKS or EVENT+TICKS+STEPS."""

    def __init__(self):
        super().__init__("clew", gdb.COMMAND_RUNNING, gdb.COMPLETE_NONE, True)


class Told(gdb.Command):
    """A command that only tells something."""

    def __init__(self, name, text, takes=False):
        self.__doc__ = text
        self.name = name
        self.takes = takes
        super().__init__("clew " + name, gdb.COMMAND_STATUS, gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        if argument and not self.takes:
            raise gdb.GdbError("clew %s takes no argument" % self.name)
        answer = monitor((self.name + " " + argument).strip())
        if answer.startswith("clew: "):
            raise gdb.GdbError(answer[len("clew: "):].strip())
        gdb.write(answer)


class Seek(gdb.Command):
    """Go to a position, forwards or backwards.
Usage: clew seek POSITION | start | end | tick:N | BOOKMARK
clew when tells positions; clew dump's event numbers are positions too."""

    def __init__(self):
        super().__init__("clew seek", gdb.COMMAND_RUNNING)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        move("seek " + argument)

    def complete(self, text, word):
        marks = [line.split()[0] for line in monitor("bookmarks").splitlines() if line]
        return [name for name in ["start", "end"] + marks if name.startswith(text)]


class Last(gdb.Command):
    """Go back to the last change of a value: to just before the instruction that made it.
Usage: clew last EXPRESSION
The expression must be in memory: a variable, an element, what a pointer points to."""

    def __init__(self):
        super().__init__("clew last", gdb.COMMAND_RUNNING, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
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


class WatchTransition(gdb.Command):
    """Go to the instruction where an expression becomes true, or stops being true.
Usage: clew watch-transition EXPRESSION
A C expression over the program's variables, which may call its functions; they run in a copy. It must
be true at one end of the recording and false at the other."""

    def __init__(self):
        super().__init__("clew watch-transition", gdb.COMMAND_RUNNING, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        move("transition " + argument)


class Back(gdb.Command):
    """Drop what was changed: from here on it is as it was recorded."""

    def __init__(self):
        super().__init__("clew back", gdb.COMMAND_RUNNING, gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        move("back")


Clew()
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
