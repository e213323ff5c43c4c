def clew_run(getframe, currentframes, modules, stdout, exception):
    LIMIT = 10000
    def show(value):
        try:
            text = repr(value)
        except BaseException as problem:
            return '<%s whose repr raises %s>' % (type(value).__name__, type(problem).__name__)
        return text if len(text) <= LIMIT else text[:LIMIT] + '...'
    def why(problem):
        return ('%s: %s' % (type(problem).__name__, problem)).strip(': ')
    def chain(frame):
        while frame is not None:
            yield frame
            frame = frame.f_back
    def names(frame):
        space = dict(frame.f_globals)
        space.update(frame.f_locals)
        return space
    def spaces():
        for one in frames():
            yield names(one)
        main = modules.get('__main__')
        if ANYWHERE and main:
            yield dict(main.__dict__)
    def frames():
        own = list(chain(frame))
        yield from own if ANYWHERE else own[:1]
        if ANYWHERE:
            for other in currentframes().values():
                others = list(chain(other))
                if frame not in others:
                    yield from others
    def value(text):
        try:
            code, executes = compile(text, '<clew>', 'eval'), False
        except SyntaxError:
            code, executes = compile(text, '<clew>', 'exec'), True
        problem = None
        for space in spaces():
            try:
                if executes:
                    exec(code, space)
                    return ('value', '', '')
                found = eval(code, space)
                return ('value', show(found), 'true' if found else 'false')
            except NameError as unknown:
                problem = problem or unknown
        raise problem
    def ask():
        if KIND == 'values':
            for text in TEXTS:
                try:
                    yield (text,) + value(text)
                except BaseException as problem:
                    yield (text, 'undefined', why(problem), '')
        elif KIND == 'exception':
            if exception:
                kind, it = exception
                if it is None:
                    text = kind.__name__
                elif isinstance(it, BaseException):
                    text = why(it)
                else:
                    text = '%s: %s' % (kind.__name__, it)
                yield ('exception', 'value', text, 'true')
        else:
            known = frame.f_locals
            code = frame.f_code
            if KIND == 'arguments':
                count = code.co_argcount + code.co_kwonlyargcount
                count += bool(code.co_flags & 4) + bool(code.co_flags & 8)
                wanted = code.co_varnames[:count]
            else:
                wanted = list(known)
            for name in wanted:
                if name in known and (code.co_name != '<module>' or name[:2] != '__'):
                    yield (name, 'value', show(known[name]), '')
    frame = getframe(2)
    for _ in range(DEPTH):
        frame = frame.f_back or frame
    clean = lambda text: text.replace('\x1e', ' ').replace('\x1f', ' ')
    told = '\x1e'.join('\x1f'.join(map(clean, fields)) for fields in ask())
    try:
        stdout.flush()
    except BaseException:
        pass
    return told.encode('utf-8', 'backslashreplace').decode()
