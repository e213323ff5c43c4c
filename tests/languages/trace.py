# The oracle: runs a script natively under sys.settrace and writes each line event with its locals to standard error.
# Fields: file, line, function, depth, then name=repr of each local variable.
import sys

def trace(path):
    depths = {}
    out = sys.stderr
    own = trace.__code__.co_filename
    def write(frame, depth):
        code = frame.f_code
        fields = [code.co_filename, str(frame.f_lineno), code.co_qualname, str(depth)]
        for name, value in list(frame.f_locals.items()):
            if code.co_name != '<module>' or name[:2] != '__':
                fields.append('%s=%r' % (name, value))
        out.write('\x1f'.join(fields).replace('\n', ' ') + '\n')
    def local(frame, event, argument):
        if event == 'line':
            write(frame, depths[0])
        elif event == 'return':
            depths[0] -= 1
        return local
    def called(frame, event, argument):
        depths[0] = depths.get(0, -1) + 1
        code = frame.f_code
        if code.co_filename == own or code.co_filename.startswith('<frozen '):
            # Counted as a call, but its lines aren't told.
            def silent(frame, event, argument):
                if event == 'return':
                    depths[0] -= 1
                return silent
            return silent
        return local
    with open(path) as file:
        code = compile(file.read(), path, 'exec')
    module = type(sys)('__main__')
    sys.modules['__main__'] = module
    module.__file__ = path
    sys.argv = [path]
    sys.settrace(called)
    try:
        exec(code, module.__dict__)
    except SystemExit:
        pass
    finally:
        sys.settrace(None)

trace(sys.argv[1])
