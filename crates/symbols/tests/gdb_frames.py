# Runs in gdb: stops at a function, then steps by instructions, and prints at each stop the
# registers, the stack's bytes, and the frames as gdb sees them.
import gdb

REGISTERS = ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"] + ["r%d" % n for n in range(8, 16)]
KEPT = ["rsp", "rbp", "rbx", "r12", "r13", "r14", "r15"]


def number(frame, name):
    try:
        return "%x" % (int(frame.read_register(name).cast(gdb.lookup_type("unsigned long"))) & (2**64 - 1))
    except (gdb.error, RuntimeError):
        return "?"


def maps(inferior):
    found = []
    for line in open("/proc/%d/maps" % inferior.pid):
        fields = line.split(None, 5)
        low, high = (int(part, 16) for part in fields[0].split("-"))
        found.append((low, high, int(fields[2], 16), fields[5].strip() if len(fields) > 5 else ""))
    return found


def describe(out, seen):
    inferior = gdb.selected_inferior()
    mappings = maps(inferior)
    for mapping in mappings:
        if mapping not in seen and (mapping[3].startswith("/") or mapping[3] == "[vdso]"):
            seen.add(mapping)
            out.write("map %x %x %x %s\n" % mapping)
            if mapping[3] == "[vdso]":
                out.write("vdso %s\n" % bytes(inferior.read_memory(mapping[0], mapping[1] - mapping[0])).hex())
    frame = gdb.newest_frame()
    out.write("stop " + " ".join(number(frame, name) for name in REGISTERS + ["rip"]) + "\n")
    sp = int(number(frame, "rsp"), 16) - 128
    end = max(high for low, high, _, _ in mappings if low <= sp < high)
    size = min(end - sp, LIMIT)
    out.write("stack %x %s\n" % (sp, bytes(inferior.read_memory(sp, size)).hex()))
    depth = 0
    while frame is not None and depth < 40:
        sal = frame.find_sal()
        kind = {gdb.INLINE_FRAME: "inline", gdb.SIGTRAMP_FRAME: "signal", gdb.TAILCALL_FRAME: "tailcall"}.get(frame.type(), "normal")
        line = "%d" % sal.line if sal.symtab else "?"
        kept = " ".join(number(frame, name) for name in KEPT)
        out.write("frame %x %s %s %s %s\n" % (frame.pc(), kind, line, kept, frame.name() or "?"))
        frame = frame.older()
        depth += 1


def travel(place, steps, path, then=None):
    gdb.execute("set pagination off")
    gdb.execute("set confirm off")
    gdb.execute("set debuginfod enabled off")
    gdb.execute("handle all nostop noprint pass", to_string=True)
    gdb.execute("set backtrace past-main on")
    gdb.execute("set disable-randomization on")
    gdb.execute("tbreak " + place)
    gdb.execute("run", to_string=True)
    if then:
        gdb.execute("tbreak " + then)
        gdb.execute("continue", to_string=True)
    seen = set()
    with open(path, "w") as out:
        for _ in range(steps):
            describe(out, seen)
            gdb.execute("stepi", to_string=True)
            if not gdb.selected_inferior().pid:
                break


LIMIT = 65536
