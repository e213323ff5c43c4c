//! Recordings without a run: written record by record.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clew_recording::codec::Encoder;
use clew_recording::event::*;
use clew_recording::log::{self, Kind, Packer, StreamEnd};
use clew_recording::meta::{self, Machine, Meta, Schedule};

/// A folder for recordings that goes away.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("clew-rec-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Place(path.canonicalize().unwrap())
    }

    pub fn dir(&self) -> PathBuf {
        self.0.join("all")
    }

    /// Runs clew with its recordings in this place.
    pub fn clew(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_clew"))
            .args(args)
            .current_dir(&self.0)
            .env("CLEW_DIR", self.dir())
            .output()
            .unwrap()
    }

    /// The same, and it must succeed: what it prints.
    pub fn good(&self, args: &[&str]) -> String {
        let output = self.clew(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, and it must fail with this status: what it says.
    pub fn bad(&self, status: i32, args: &[&str]) -> String {
        let output = self.clew(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub fn recording(&self, name: &str, started: u64) -> Builder {
        Builder::new(&self.dir().join(name), started)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a log.
pub struct Builder {
    pub folder: PathBuf,
    log: Vec<u8>,
    packer: Packer,
}

/// The records of one stream.
#[derive(Default)]
pub struct Records {
    encoder: Encoder,
    bytes: Vec<u8>,
    /// Where chunks end, beside the last.
    cuts: Vec<usize>,
}

impl Records {
    pub fn event(mut self, event: Event) -> Records {
        let mut room = vec![0; LONGEST_RECORD];
        let len = self.encoder.event(&event, &mut room);
        self.bytes.extend_from_slice(&room[..len]);
        self
    }

    /// A chunk ends here.
    pub fn cut(mut self) -> Records {
        self.cuts.push(self.bytes.len());
        self
    }

    pub fn memory(mut self, addr: u64, bytes: &[u8]) -> Records {
        let mut room = vec![0; LONGEST_RECORD];
        let len = self
            .encoder
            .effect(&Effect::Memory { addr, bytes }, &mut room);
        self.bytes.extend_from_slice(&room[..len]);
        self
    }

    pub fn call(self, nr: i64, args: [u64; 6], end: End) -> Records {
        self.event(Event::Call(Call {
            ticks: 100,
            nr: nr as u32,
            args,
            end,
            output: None,
        }))
    }
}

pub fn start(pid: i32, origin: Origin, time: u64, argv: &[&str]) -> Event<'static> {
    Event::Started(Start {
        origin,
        pid,
        parent_pid: 1,
        tid: pid,
        exe: argv[0].as_bytes().to_vec(),
        argv: argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        time,
    })
}

impl Builder {
    pub fn new(folder: &Path, started: u64) -> Builder {
        fs::create_dir_all(folder.join("files")).unwrap();
        fs::write(folder.join("files/0001"), b"a copied file").unwrap();
        let meta = Meta {
            format: meta::FORMAT,
            clock: meta::CLOCK,
            capture: meta::EXACT.into(),
            clew: "0.1.0".into(),
            name: folder.file_name().unwrap().to_str().unwrap().into(),
            program: "/bin/demo".into(),
            argv: vec!["demo".into(), "two words".into()],
            cwd: "/".into(),
            started_ns: started * 1_000_000_000,
            pid: 100,
            schedule: Schedule {
                time: None,
                policy: "fair".into(),
                seed: 7,
                depth: None,
                length: None,
                chaos: None,
            },
            portable: false,
            machine: Machine {
                vendor: "V".into(),
                brand: "B".into(),
                ..Machine::default()
            },
            region: None,
        };
        meta.write(folder).unwrap();
        Builder {
            folder: folder.into(),
            log: log::file_header().to_vec(),
            packer: Packer::default(),
        }
    }

    pub fn stream(mut self, id: StreamId, records: Records) -> Builder {
        let mut history = Vec::new();
        let mut from = 0;
        for to in records.cuts.into_iter().chain([records.bytes.len()]) {
            let piece = &records.bytes[from..to];
            let chunk = self.packer.pack(Kind::Records, id, piece, &history);
            self.log.extend_from_slice(chunk);
            log::remember(&mut history, piece);
            from = to;
        }
        let chunk = self
            .packer
            .pack(Kind::StreamEnd(StreamEnd::Ended), id, &[], &[]);
        self.log.extend_from_slice(chunk);
        self
    }

    /// A process that isn't recorded.
    pub fn unrecorded(mut self, id: StreamId, why: &str) -> Builder {
        let chunk = self.packer.pack(Kind::Unrecorded, id, why.as_bytes(), &[]);
        self.log.extend_from_slice(chunk);
        self
    }

    /// With its end.
    pub fn finish(mut self) -> PathBuf {
        let chunk = self.packer.pack(Kind::End, 0, &[], &[]);
        self.log.extend_from_slice(chunk);
        self.cut()
    }

    /// As it is when the writer was killed.
    pub fn cut(self) -> PathBuf {
        fs::write(self.folder.join(log::NAME), &self.log).unwrap();
        self.folder
    }

    /// A process that exits.
    pub fn simple(self, status: i32) -> PathBuf {
        let records = Records::default()
            .event(start(100, Origin::Exec { before: 0 }, 0, &["/bin/demo"]))
            .event(Event::Time(2_000_000))
            .event(Event::Exited { ticks: 5, status });
        self.stream(1, records).finish()
    }
}
