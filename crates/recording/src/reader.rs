//! From a recording's folder back to its events.
//!
//! In: `log`, possibly cut short, damaged or made by a stranger. Out: the records of each stream up to
//! the first bad chunk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::Malformed;
use crate::codec::{Decoder, put_number};
use crate::event::{Event, Origin, ProcessId, Record, Start, StreamId};
use crate::log::{self, CHUNK_HEADER, Chunk, FILE_HEADER, Kind, StreamEnd, Unpacker};
use crate::tail;

/// The folder with copies of files, in a recording's folder.
pub const FILES: &str = "files";

/// Why a recording can't be opened, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}: no such recording; `clew ls` lists what there is")]
    Missing(PathBuf),
    #[error("{0}: not a recording (no log in it); `clew ls` lists what there is")]
    NoLog(PathBuf),
    #[error(
        "{0}: not a log of clew's; the recording is damaged from its first byte on, record again"
    )]
    NotALog(PathBuf),
    #[error(
        "{path}: made by a newer clew (format {found}, this one reads up to {}); replay it with that one",
        log::VERSION
    )]
    Newer { path: PathBuf, found: u32 },
    #[error(
        "{path}: it holds what this clew doesn't know (a chunk of kind {kind}) and can't do without; replay it with the clew \
         that made it"
    )]
    Needs { path: PathBuf, kind: u8 },
    #[error("{0}: nothing was recorded: the log ends before the first event; record again")]
    Empty(PathBuf),
    #[error(
        "{0}: only its last part is kept, and it is in parts while the program runs; `clew save NAME` makes a recording of them"
    )]
    InParts(PathBuf),
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// Why a stream can't be read on. What was read before is good.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the recording has no stream {0}; `clew info` lists its processes")]
    NoStream(StreamId),
    #[error("the log is damaged at byte {at} (stream {stream}); it is good up to event {event}")]
    Damaged {
        stream: StreamId,
        at: u64,
        event: u64,
    },
    #[error("reading the log: {0}")]
    Io(#[from] io::Error),
}

/// What is known of a stream without reading it.
#[derive(Clone, Debug)]
pub struct StreamInfo {
    pub id: StreamId,
    /// Whose: the streams of a process are those that follow each other by exec.
    pub process: ProcessId,
    /// Bytes of records.
    pub raw: u64,
    /// How it ended; `None` if the log ends first: what comes last may be missing.
    pub end: Option<StreamEnd>,
    pub start: Start,
}

impl StreamInfo {
    /// Nothing is missing at its end.
    pub fn is_complete(&self) -> bool {
        self.end.is_some()
    }
}

/// A process that ran without being recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecorded {
    /// The stream that it would have had.
    pub stream: StreamId,
    /// Who it is, and why it isn't recorded.
    pub text: String,
}

/// A chunk and where its bytes begin in the log.
type Placed = (u64, Chunk);

/// An open recording. A clone reads the same file.
#[derive(Clone)]
pub struct Recording {
    folder: PathBuf,
    file: Arc<File>,
    streams: Vec<StreamInfo>,
    /// For each of `streams`.
    chunks: Vec<Arc<[Placed]>>,
    unrecorded: Vec<Unrecorded>,
    complete: bool,
    good: u64,
}

impl Recording {
    pub fn open(folder: &Path) -> Result<Recording, OpenError> {
        let path = folder.join(log::NAME);
        let wrap = |error: io::Error| OpenError::Io {
            path: path.clone(),
            error,
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(if folder.exists() {
                    OpenError::NoLog(folder.into())
                } else {
                    OpenError::Missing(folder.into())
                });
            }
            Err(error) => return Err(wrap(error)),
        };
        match Recording::from_log(file, folder) {
            Err(OpenError::Empty(_)) if tail::is_in_parts(folder) => {
                Err(OpenError::InParts(folder.into()))
            }
            result => result,
        }
    }

    /// Another descriptor of the log.
    pub fn log(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The same with a log that is open already.
    pub fn from_log(file: File, folder: &Path) -> Result<Recording, OpenError> {
        let path = folder.join(log::NAME);
        let wrap = |error: io::Error| OpenError::Io {
            path: path.clone(),
            error,
        };
        check_header(&file, &path)?;
        let scan = Scan::of(&file, Scan::CHECKED).map_err(wrap)?;
        if let Some(kind) = scan.needs {
            return Err(OpenError::Needs { path, kind });
        }
        let mut recording = Recording {
            folder: folder.into(),
            file: Arc::new(file),
            streams: Vec::new(),
            chunks: Vec::new(),
            unrecorded: Vec::new(),
            complete: false,
            good: 0,
        };
        if !recording.take(scan).map_err(wrap)? {
            // It is damaged somewhere: where it is for the first time, it ends.
            let scan = Scan::of(&recording.file, u64::MAX).map_err(wrap)?;
            recording.take(scan).map_err(wrap)?;
            recording.complete = false;
        }
        if recording.streams.is_empty() {
            return Err(OpenError::Empty(folder.into()));
        }
        Ok(recording)
    }

    /// Looks how each stream begins. False if one doesn't as it should: it is left out.
    fn take(&mut self, scan: Scan) -> io::Result<bool> {
        self.complete = scan.complete;
        self.good = scan.good;
        self.streams.clear();
        self.chunks.clear();
        self.unrecorded = scan.unrecorded;
        let mut processes = 0;
        let mut good = true;
        for stream in scan.streams {
            let chunks: Arc<[Placed]> = stream.chunks.into();
            let mut reader = StreamReader::new(self.file.clone(), stream.id, chunks.clone());
            let start = match reader.next() {
                Ok(Some(Record::Event(Event::Started(start)))) => start,
                Err(ReadError::Io(error)) => return Err(error),
                _ => {
                    good = false;
                    continue;
                }
            };
            // Numbers only grow: the stream before an exec is there already. Without one (the first of all,
            // and what the child of a vfork starts) a process begins.
            let before = match start.origin {
                Origin::Exec { before } => self.info(before),
                Origin::Fork { .. } | Origin::Midst { .. } => None,
            };
            let process = before.map(|info| info.process).unwrap_or_else(|| {
                processes += 1;
                processes
            });
            self.streams.push(StreamInfo {
                id: stream.id,
                process,
                raw: chunks.iter().map(|(_, chunk)| chunk.raw as u64).sum(),
                end: stream.end,
                start,
            });
            self.chunks.push(chunks);
        }
        Ok(good)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// In order of their numbers. A number may be missing: of a process that died before its first event
    /// was written.
    pub fn streams(&self) -> &[StreamInfo] {
        &self.streams
    }

    /// What is known of a stream.
    pub fn info(&self, id: StreamId) -> Option<&StreamInfo> {
        let found = self.streams.binary_search_by_key(&id, |info| info.id);
        found.ok().map(|index| &self.streams[index])
    }

    /// The streams of one process, in order.
    pub fn of_process(&self, process: ProcessId) -> impl Iterator<Item = &StreamInfo> {
        self.streams
            .iter()
            .filter(move |info| info.process == process)
    }

    /// How many processes there are in the recording.
    pub fn processes(&self) -> u32 {
        self.streams
            .iter()
            .map(|info| info.process)
            .max()
            .unwrap_or(0)
    }

    /// Processes that aren't in it although they were there.
    pub fn unrecorded(&self) -> &[Unrecorded] {
        &self.unrecorded
    }

    pub fn stream(&self, id: StreamId) -> Result<StreamReader, ReadError> {
        let found = self.streams.binary_search_by_key(&id, |info| info.id);
        let index = found.map_err(|_| ReadError::NoStream(id))?;
        Ok(StreamReader::new(
            self.file.clone(),
            id,
            self.chunks[index].clone(),
        ))
    }

    /// The writer saw the end of all processes, and nothing was lost since.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Bytes of the log that are good.
    pub fn size(&self) -> u64 {
        self.good
    }

    /// The writer is still at work (as far as locks tell, which network file systems may not).
    pub fn is_being_written(&self) -> bool {
        // A lock belongs to an open file: this one is the caller's alone only if opened anew.
        let Ok(file) = File::open(self.folder.join(log::NAME)) else {
            return false;
        };
        matches!(
            file.try_lock_shared(),
            Err(std::fs::TryLockError::WouldBlock)
        )
    }

    /// Names of all files of the recording.
    pub fn file_names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let entries = match std::fs::read_dir(self.folder.join(FILES)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            Err(error) => return Err(error),
        };
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// A file of the recording: `files/<name>`.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
        if !plain {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name:?} is no name of a file in a recording"),
            ));
        }
        use std::os::unix::fs::OpenOptionsExt;
        // A recording from elsewhere must not lead out of its folder.
        File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.folder.join(FILES).join(name))
    }
}

/// What a log says of processes that ran without being recorded.
pub(crate) fn unrecorded(file: &File) -> io::Result<Vec<Unrecorded>> {
    Ok(Scan::of(file, Scan::CHECKED)?.unrecorded)
}

fn check_header(file: &File, path: &Path) -> Result<(), OpenError> {
    let mut header = [0; FILE_HEADER];
    if let Err(error) = file.read_exact_at(&mut header, 0) {
        return Err(match error.kind() {
            io::ErrorKind::UnexpectedEof => OpenError::Empty(path.into()),
            _ => OpenError::Io {
                path: path.into(),
                error,
            },
        });
    }
    let found = u32::from_le_bytes([8, 9, 10, 11].map(|n| header[n]));
    let sum = match found {
        0..log::SUMMED => [0; 4],
        _ => log::header_sum(&header[..12]),
    };
    let good = found > log::VERSION || header[12..] == sum;
    if header[..8] != log::MAGIC || !good {
        return Err(OpenError::NotALog(path.into()));
    }
    match found {
        0 => Err(OpenError::NotALog(path.into())),
        // What earlier versions have, later ones have too.
        1..=log::VERSION => Ok(()),
        _ => Err(OpenError::Newer {
            path: path.into(),
            found,
        }),
    }
}

struct Scanned {
    id: StreamId,
    chunks: Vec<Placed>,
    end: Option<StreamEnd>,
}

/// What the headers of a log say, up to the first bad one.
struct Scan {
    /// In order of their numbers.
    streams: Vec<Scanned>,
    unrecorded: Vec<Unrecorded>,
    /// The first kind of chunk that can't be done without, and isn't known.
    needs: Option<u8>,
    complete: bool,
    good: u64,
}

impl Scan {
    /// A log that wasn't finished may have lost what was written last: so much is checked at once.
    const CHECKED: u64 = 64 << 20;

    /// Checks the contents of the last `checked` bytes if the log wasn't finished, or is to be checked whole.
    fn of(file: &File, checked: u64) -> io::Result<Scan> {
        let size = file.metadata()?.len();
        let mut headers = Headers::new(file, size);
        let mut all = Vec::new();
        let mut complete = false;
        while let Some(placed) = headers.next()? {
            complete = placed.1.kind == Kind::End;
            all.push(placed);
            if complete {
                break;
            }
        }
        if !complete || checked == u64::MAX {
            cut_damaged(file, &mut all, size.saturating_sub(checked))?;
        }
        let good = all
            .last()
            .map_or(FILE_HEADER as u64, |(at, chunk)| at + chunk.stored as u64);
        let mut streams = std::collections::BTreeMap::new();
        let mut unrecorded = Vec::new();
        let mut needs = None;
        for (at, chunk) in all {
            match chunk.kind {
                Kind::End | Kind::Extra(_) => continue,
                Kind::Needed(kind) => {
                    needs = needs.or(Some(kind));
                    continue;
                }
                Kind::Unrecorded => {
                    let mut text = Vec::new();
                    let read = Unpacker::default().unpack(file, &chunk, at, &[], &mut text)?;
                    if read.is_none() {
                        text = b"a process isn't recorded".to_vec();
                    }
                    // The writer says less.
                    text.truncate(1000);
                    unrecorded.push(Unrecorded {
                        stream: chunk.stream,
                        text: String::from_utf8_lossy(&text).into_owned(),
                    });
                    continue;
                }
                _ => {}
            }
            let scanned = streams.entry(chunk.stream).or_insert_with(|| Scanned {
                id: chunk.stream,
                chunks: Vec::new(),
                end: None,
            });
            match chunk.kind {
                Kind::StreamEnd(end) => scanned.end = Some(end),
                _ => scanned.chunks.push((at, chunk)),
            }
        }
        Ok(Scan {
            streams: streams.into_values().collect(),
            unrecorded,
            needs,
            complete,
            good,
        })
    }
}

/// Drops the first chunk whose bytes aren't what they were, and all after it; looks from `from` on.
fn cut_damaged(file: &File, all: &mut Vec<Placed>, from: u64) -> io::Result<()> {
    let first = all.partition_point(|(at, _)| *at < from);
    let mut stored = Vec::new();
    for n in first..all.len() {
        let (at, chunk) = all[n];
        stored.resize(chunk.stored as usize, 0);
        file.read_exact_at(&mut stored, at)?;
        if crc32fast::hash(&stored) != chunk.sum {
            all.truncate(n);
            break;
        }
    }
    Ok(())
}

/// Goes from header to header.
struct Headers<'a> {
    file: &'a File,
    size: u64,
    at: u64,
    number: u32,
    /// Small chunks lie close together: one read gets many.
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Headers<'a> {
    const WINDOW: usize = 16 << 10;

    fn new(file: &'a File, size: u64) -> Headers<'a> {
        Headers {
            file,
            size,
            at: FILE_HEADER as u64,
            number: 0,
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// The next header and where its bytes begin; `None` at the end and at anything bad.
    fn next(&mut self) -> io::Result<Option<Placed>> {
        let Some(bytes) = self.header()? else {
            return Ok(None);
        };
        let Some(chunk) = Chunk::decode(&bytes, self.number) else {
            return Ok(None);
        };
        let data = self.at + CHUNK_HEADER as u64;
        if chunk.stored as u64 > self.size - data {
            return Ok(None);
        }
        self.number = self.number.wrapping_add(1);
        self.at = data + chunk.stored as u64;
        Ok(Some((data, chunk)))
    }

    fn header(&mut self) -> io::Result<Option<[u8; CHUNK_HEADER]>> {
        if self.size < self.at + CHUNK_HEADER as u64 {
            return Ok(None);
        }
        let end = self.window_at + self.window.len() as u64;
        if self.at < self.window_at || self.at + CHUNK_HEADER as u64 > end {
            // After a large chunk the next will be large too.
            let close = self.at < end + Self::WINDOW as u64;
            let len = if close { Self::WINDOW } else { CHUNK_HEADER };
            let len = len.min((self.size - self.at) as usize);
            self.window.resize(len, 0);
            self.window_at = self.at;
            self.file.read_exact_at(&mut self.window, self.at)?;
        }
        let from = (self.at - self.window_at) as usize;
        Ok(self.window[from..from + CHUNK_HEADER].try_into().ok())
    }
}

/// Reads the records of one stream, from its start. Copies go their own ways, also in forked processes:
/// there is no shared file offset, and after opening nothing but pread and memory is used.
pub struct StreamReader {
    file: Arc<File>,
    stream: StreamId,
    chunks: Arc<[Placed]>,
    /// The next of `chunks`.
    next_chunk: usize,
    /// Records of the chunk before that.
    data: Arc<Vec<u8>>,
    /// Where the next record begins in `data`.
    at: usize,
    history: Vec<u8>,
    /// The record before `at`, if it was only looked at. Its lifetime is a lie: it borrows from
    /// `data`, which isn't changed before this is gone.
    ahead: Option<Record<'static>>,
    /// The record that was given out last, likewise; one without borrows while `data` changes.
    current: Record<'static>,
    decoder: Decoder,
    unpacker: Option<Box<Unpacker>>,
    events: u64,
    /// Bytes of records in the chunks so far.
    raw: u64,
}

/// What a reader knows between two chunks: whoever begins there needs it.
#[derive(Clone)]
pub struct Resume {
    events: u64,
    raw: u64,
    next_chunk: u32,
    history: Vec<u8>,
    decoder: Decoder,
}

impl Resume {
    /// So many were taken before.
    pub fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.events, self.raw, self.next_chunk.into()] {
            put_number(out, number);
        }
        put_number(out, self.history.len() as u64);
        out.extend_from_slice(&self.history);
        self.decoder.save(out);
    }

    pub(crate) fn decode(input: &mut crate::bytes::Reader) -> Result<Resume, Malformed> {
        let (events, raw, next_chunk) = (input.number()?, input.number()?, input.small()?);
        let len = input.number()?;
        if len > log::HISTORY as u64 {
            return Err(Malformed);
        }
        Ok(Resume {
            events,
            raw,
            next_chunk,
            history: input.bytes(len)?.to_vec(),
            decoder: Decoder::restore(input)?,
        })
    }
}

/// A record that borrows nothing.
const NONE: Record<'static> = Record::Event(crate::event::Event::Time(0));

impl Clone for StreamReader {
    fn clone(&self) -> StreamReader {
        StreamReader {
            file: self.file.clone(),
            stream: self.stream,
            chunks: self.chunks.clone(),
            next_chunk: self.next_chunk,
            data: self.data.clone(),
            at: self.at,
            history: self.history.clone(),
            ahead: self.ahead.clone(),
            current: NONE,
            decoder: self.decoder.clone(),
            unpacker: None,
            events: self.events,
            raw: self.raw,
        }
    }
}

impl StreamReader {
    fn new(file: Arc<File>, stream: StreamId, chunks: Arc<[Placed]>) -> StreamReader {
        StreamReader {
            file,
            stream,
            chunks,
            next_chunk: 0,
            data: Arc::default(),
            at: 0,
            history: Vec::new(),
            ahead: None,
            current: NONE,
            decoder: Decoder::default(),
            unpacker: None,
            events: 0,
            raw: 0,
        }
    }

    /// Whether all of the chunks that it has taken was given out.
    #[inline]
    pub fn is_between_chunks(&self) -> bool {
        self.at == self.data.len() && self.ahead.is_none()
    }

    /// Bytes of records in the chunks that it has taken.
    pub fn raw(&self) -> u64 {
        self.raw
    }

    /// What one must know to go on from here, between two chunks.
    pub fn resume(&self) -> Resume {
        Resume {
            events: self.events,
            raw: self.raw,
            next_chunk: self.next_chunk as u32,
            history: self.history.clone(),
            decoder: self.decoder.clone(),
        }
    }

    /// Goes on from there, wherever it was.
    pub fn go_to(&mut self, resume: &Resume) {
        (self.ahead, self.current) = (None, NONE);
        (self.data, self.at) = (Arc::default(), 0);
        (self.events, self.raw) = (resume.events, resume.raw);
        self.next_chunk = (resume.next_chunk as usize).min(self.chunks.len());
        self.history = resume.history.clone();
        self.decoder = resume.decoder.clone();
    }

    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// How many events have been taken.
    pub fn position(&self) -> u64 {
        self.events
    }

    /// The next record; `None` at the end, also where the log was cut off.
    // Not an iterator's: what it returns borrows from the reader.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        // The shorter lifetime, that of the borrow of self, is the true one.
        let record = if self.ahead.is_some() {
            self.ahead.take()
        } else {
            self.decode()?
        };
        self.events += matches!(record, Some(Record::Event(_))) as u64;
        Ok(record)
    }

    /// The same, left in its place in the reader.
    #[inline]
    pub fn next_in_place(&mut self) -> Result<Option<&Record<'_>>, ReadError> {
        if self.ahead.is_some() {
            self.current = self.ahead.take().unwrap_or(NONE);
        } else {
            if self.at == self.data.len() && !self.load()? {
                return Ok(None);
            }
            // SAFETY: as in `decode`; `load` also empties `current`.
            let data: &'static [u8] = unsafe { extend(&self.data[self.at..]) };
            match self.decoder.next_into(data, &mut self.current) {
                Ok(Some(used)) => self.at += used,
                Ok(None) | Err(Malformed) => return Err(self.damaged()),
            }
        }
        self.events += matches!(self.current, Record::Event(_)) as u64;
        Ok(Some(&self.current))
    }

    /// The record that [`Self::next`] will return.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<&Record<'_>>, ReadError> {
        if self.ahead.is_none() {
            self.ahead = self.decode()?;
        }
        Ok(self.ahead.as_ref())
    }

    /// The next effect of the event that was taken last; `None` if an event (or nothing) follows.
    #[inline]
    pub fn next_effect(&mut self) -> Result<Option<crate::event::Effect<'_>>, ReadError> {
        match self.peek()? {
            Some(Record::Effect(_)) => match self.next()? {
                Some(Record::Effect(effect)) => Ok(Some(effect)),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    #[inline]
    fn decode(&mut self) -> Result<Option<Record<'static>>, ReadError> {
        if self.at == self.data.len() && !self.load()? {
            return Ok(None);
        }
        // SAFETY: the bytes are on the heap, behind an Arc that this reader holds, and `load`, the only
        // one to replace them, isn't called while a record is out: callers hold it no longer than their
        // borrow of self, and `ahead` is empty then.
        let data: &'static [u8] = unsafe { extend(&self.data[self.at..]) };
        match self.decoder.next(data) {
            Ok(Some((record, used))) => {
                self.at += used;
                Ok(Some(record))
            }
            // Chunks hold whole records.
            Ok(None) | Err(Malformed) => Err(self.damaged()),
        }
    }

    /// Gets the next chunk; false if there is none.
    #[cold]
    fn load(&mut self) -> Result<bool, ReadError> {
        let Some((at, chunk)) = self.chunks.get(self.next_chunk).copied() else {
            return Ok(false);
        };
        if Arc::get_mut(&mut self.data).is_none() {
            self.data = Arc::default();
        }
        self.current = NONE;
        let data = Arc::get_mut(&mut self.data).expect("not shared, or just made");
        let unpacker = self.unpacker.get_or_insert_default();
        let good = unpacker.unpack(&self.file, &chunk, at, &self.history, data)?;
        if good.is_none() {
            data.clear();
            self.at = 0;
            return Err(self.damaged());
        }
        log::remember(&mut self.history, data);
        self.raw += data.len() as u64;
        self.at = 0;
        self.next_chunk += 1;
        Ok(true)
    }

    #[cold]
    fn damaged(&self) -> ReadError {
        let chunk = self.next_chunk.min(self.chunks.len() - 1);
        ReadError::Damaged {
            stream: self.stream,
            at: self.chunks[chunk].0,
            event: self.events,
        }
    }
}

/// # Safety
/// The bytes stay where they are for as long as the result is used.
unsafe fn extend(bytes: &[u8]) -> &'static [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
}
