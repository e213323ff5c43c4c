//! Questions: `q` packets and host I/O. In: what gdb asks. Out: threads, descriptions, files, libraries.

use std::path::{Component, Path, PathBuf};

use clew_recording::meta::Meta;

use crate::auxv::{AT_BASE, AT_ENTRY};
use crate::ids;
use crate::libraries::{self, Libraries};
use crate::processfs::Process;
use crate::session::{Answer, FAILED, Session, UNKNOWN};
use crate::wire::LONGEST;
use crate::{Result, registers, xml};

/// What is offered beside the basics. The condition of a breakpoint goes to the engine.
const FEATURES: &str = "QStartNoAckMode+;multiprocess+;swbreak+;hwbreak+;ReverseStep+;ReverseContinue+;\
    QPassSignals+;QProgramSignals+;QCatchSyscalls+;ConditionalBreakpoints+;vContSupported+;\
    QDisableRandomization+;QStartupWithShell+;fork-events+;vfork-events+;exec-events+;\
    qXfer:features:read+;qXfer:auxv:read+;qXfer:exec-file:read+;qXfer:threads:read+;\
    qXfer:siginfo:read+;qXfer:libraries-svr4:read+;error-message+";

impl Session<'_> {
    pub(crate) fn query(&mut self, rest: &[u8]) -> Result<Answer> {
        if let Some(theirs) = rest.strip_prefix(b"Supported") {
            for feature in theirs.split(|byte| matches!(byte, b':' | b';')) {
                match feature {
                    b"fork-events+" => self.hears_of_forks(),
                    b"error-message+" => self.shows_messages = true,
                    _ => {}
                }
            }
            let reply = format!("PacketSize={LONGEST:x};{FEATURES}");
            return Ok(Answer::Reply(reply.into_bytes()));
        }
        if let Some(request) = rest.strip_prefix(b"Xfer:") {
            return self.transfer(request);
        }
        if let Some(command) = rest.strip_prefix(b"Rcmd,") {
            return self.monitor(command);
        }
        if rest == b"C" {
            let tid = self.standing.tid;
            let id = ids::text(self.pid(), tid);
            return Ok(Answer::Reply(format!("QC{id}").into_bytes()));
        }
        if rest == b"fThreadInfo" {
            let pid = self.pid();
            let threads = self.all_threads()?.iter();
            let ids: Vec<String> = threads.map(|thread| ids::text(pid, thread.tid)).collect();
            return Ok(Answer::Reply(format!("m{}", ids.join(",")).into_bytes()));
        }
        if rest == b"sThreadInfo" {
            return Ok("l".into());
        }
        if rest.starts_with(b"Attached") {
            // It was running before gdb came, and goes on without it.
            return Ok("1".into());
        }
        if let Some(symbol) = rest.strip_prefix(b"Symbol:") {
            return self.symbol(symbol);
        }
        if let Some(variable) = rest.strip_prefix(b"GetTLSAddr:") {
            return self.thread_local(variable);
        }
        Ok(UNKNOWN.into())
    }

    /// `object:read:annex:offset,length`.
    fn transfer(&mut self, request: &[u8]) -> Result<Answer> {
        let mut parts = request.splitn(3, |&byte| byte == b':');
        let (object, verb, rest) = (parts.next(), parts.next(), parts.next());
        let (Some(object), Some(b"read"), Some(rest)) = (object, verb, rest) else {
            return Ok(UNKNOWN.into());
        };
        let Some(at) = rest.iter().rposition(|&byte| byte == b':') else {
            return Ok(FAILED.into());
        };
        let (annex, window) = (&rest[..at], &rest[at + 1..]);
        let contents = match object {
            b"features" if annex == b"target.xml" => Some(registers::description().into_bytes()),
            b"auxv" => Some(self.auxv.bytes()),
            b"exec-file" => Some(self.exe()?.into_bytes()),
            b"threads" => Some(self.threads_xml()?.into_bytes()),
            b"siginfo" => self.siginfo()?,
            b"libraries-svr4" => {
                // A list that is read in pieces stays as it was at the first.
                if window.starts_with(b"0,") || self.libraries.is_none() {
                    let libraries = self.current_libraries()?;
                    self.libraries = Some(libraries);
                }
                self.libraries.as_ref().map(|list| list.xml().into_bytes())
            }
            b"features" => None,
            _ => return Ok(UNKNOWN.into()),
        };
        let piece = contents.and_then(|contents| xml::piece(&contents, window));
        Ok(piece.map_or(FAILED.into(), Answer::Reply))
    }

    /// The program's path, as it was mapped; the recording has a copy by this name.
    fn exe(&mut self) -> Result<String> {
        self.learn_files()?;
        let entry = self.auxv.get(AT_ENTRY).unwrap_or(0);
        let started = String::from_utf8_lossy(&self.start.exe).into_owned();
        let Some((mapped, _)) = self.file_at(entry)? else {
            return Ok(started);
        };
        // People know it by the name that they gave, which may be a link's.
        let Some(name) = self.executed_as(&mapped) else {
            return Ok(mapped);
        };
        self.files.learn_link(&name, &mapped);
        Ok(name)
    }

    /// The path by which the program was executed, if it isn't the file's own and is known in full.
    fn executed_as(&self, mapped: &str) -> Option<String> {
        let executed = self.auxv.executed.as_deref()?;
        let argv = &self.start.argv;
        // A script: the program is its interpreter, whose path the kernel puts in front of the script's.
        let is_script = argv
            .iter()
            .take(3)
            .skip(1)
            .any(|word| word == executed.as_bytes())
            && argv[0] != executed.as_bytes();
        let path = match is_script {
            true => std::str::from_utf8(&argv[0]).ok()?,
            false => executed,
        };
        let first = self
            .recording
            .streams()
            .first()
            .is_some_and(|info| info.id == self.stream);
        let path = match path.starts_with('/') {
            true => PathBuf::from(path),
            // Only where the recording began is known.
            false if first => {
                let meta = Meta::read(self.recording.folder()).ok()?;
                let below = path.trim_start_matches("./");
                Path::new(&meta.cwd).join(below)
            }
            false => return None,
        };
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let path = path.to_str()?;
        (plain && path.starts_with('/') && path != mapped).then(|| path.into())
    }

    /// The file that is mapped there: its name then, and its copy's.
    fn file_at(&mut self, addr: u64) -> Result<Option<(String, String)>> {
        let mut mappings = self.all_mappings()?.iter();
        let found = mappings.find(|m| (m.start..m.end).contains(&addr));
        Ok(found.and_then(|mapping| Some((mapping.name.clone(), mapping.copy.clone()?))))
    }

    /// Remembers which copies the files have that are mapped now.
    fn learn_files(&mut self) -> Result<()> {
        self.all_mappings()?;
        for mapping in self.mappings.iter().flatten() {
            if let Some(copy) = &mapping.copy
                && mapping.name.starts_with('/')
            {
                self.files.learn(&self.recording, &mapping.name, copy);
            }
        }
        // gdb looks for the loader by the name that the program gives it.
        let auxv = self.auxv.clone();
        let mut read = |addr: u64, into: &mut [u8]| self.read_exactly(addr, into);
        let loader = libraries::loader(&auxv, &mut read);
        let base = auxv.get(AT_BASE).unwrap_or(0);
        if let (Some(name), Some((_, copy))) = (loader, self.file_at(base)?) {
            self.files.learn(&self.recording, &name, &copy);
        }
        Ok(())
    }

    /// The loader's list as it is here, its names known as files.
    pub(crate) fn current_libraries(&mut self) -> Result<Libraries> {
        self.learn_files()?;
        let auxv = self.auxv.clone();
        let mut read = |addr: u64, into: &mut [u8]| self.read_exactly(addr, into);
        let libraries = Libraries::read(&auxv, &mut read);
        // Whatever a name means by now, or meant: this file lies there.
        for library in &libraries.all {
            if let Some((_, copy)) = self.file_at(library.dynamic)? {
                self.files.learn(&self.recording, &library.name, &copy);
            }
        }
        Ok(libraries)
    }

    fn threads_xml(&mut self) -> Result<String> {
        let pid = self.pid();
        let mut text = String::from("<threads>");
        for thread in self.all_threads()? {
            let id = ids::text(pid, thread.tid);
            let name = xml::escaped(&thread.name);
            text.push_str(&format!("<thread id=\"{id}\" name=\"{name}\"/>"));
        }
        text.push_str("</threads>");
        Ok(text)
    }

    /// `vFile:...`.
    pub(crate) fn file(&mut self, request: &[u8]) -> Result<Answer> {
        let exe = if request.starts_with(b"open:") || request.starts_with(b"readlink:") {
            self.exe()?
        } else {
            String::new()
        };
        let mappings = self.mappings.as_deref().unwrap_or_default();
        let process = Process {
            pid: self.start.pid,
            exe: &exe,
            argv: &self.start.argv,
            mappings,
        };
        let made = &mut |path: &str| process.file(path);
        let reply = self.files.answer(request, &self.recording, made);
        Ok(Answer::Reply(reply))
    }
}
