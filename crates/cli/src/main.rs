//! The `clew` command. In: the command line, or an engine's handover. Out: the guest's own status.
//!
//! `main` is C's, without Rust's runtime in front of it: that would ignore SIGPIPE, reopen closed
//! standard descriptors and take its time, all of which the guest would notice.
#![cfg_attr(not(test), no_main)]

mod answers;
mod arguments;
mod asking;
mod cache;
mod ctl;
mod cut;
mod debug;
mod describe;
mod diagnose;
mod divergence;
mod doctor;
#[allow(non_upper_case_globals)]
mod fixed;
mod hunt;
mod interrupt;
mod keep;
mod language;
mod machine;
mod order;
mod origin;
mod outcome;
mod probe;
mod profile;
mod progress;
mod races;
mod record;
mod recordings;
mod replay;
mod replaying;
mod run;
mod serving;
mod slice;
mod stack;
mod tail;
mod tasks;
mod text;
mod variables;
mod watch;
mod weave;
mod when;

use std::ffi::{CStr, CString, c_char, c_int};

use arguments::Command;
use clew_engine::replay::worker::spawn;
use clew_engine::start::{self, Request};

/// A guest may leave the engine no mappings.
#[global_allocator]
static ALLOCATOR: clew_engine::memory::reserve::Allocator = clew_engine::memory::reserve::Allocator;

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn main(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    // SAFETY: the C library passes NULL-terminated arrays of strings that live for ever.
    let (argv, envp) = unsafe { (strings(argv), strings(envp)) };
    debug_assert_eq!(argc as usize, argv.len());
    let owned = |strings: &[&CStr]| {
        strings
            .iter()
            .map(|&s| s.to_owned())
            .collect::<Vec<CString>>()
    };
    // A guest's exec: no arguments of ours, no time to lose.
    if let Some(request) = Request::handed_over(&owned(&argv), &envp) {
        match request {
            Ok(request) => start::run(request),
            Err(error) => return run::failed(&error),
        }
    }
    if argv
        .get(1)
        .is_some_and(|&word| word.to_bytes() == spawn::ARGUMENT.as_bytes())
    {
        spawn::become_worker();
    }
    let command = arguments::parse(&argv);
    if let Ok(command) = &command
        && command.translates()
        && let Some(problem) = clew_engine::host::cpu::problem()
    {
        eprintln!("clew: {problem}");
        return clew_engine::kernel::stop::STATUS;
    }
    match command {
        Ok(Command::Run(options)) => run::run(&options, &envp),
        Ok(Command::Record(options)) => record::record(&options, &envp),
        Ok(Command::Replay(options)) => replay::replay(&options, &envp),
        Ok(Command::Debug(options)) => debug::debug(&options, &envp),
        Ok(Command::Watch(options)) => watch::watch(&options, &envp),
        Ok(Command::Last(options)) => language::last(&options, &envp),
        Ok(Command::Origin(options)) => origin::origin(&options, &envp),
        Ok(Command::Slice(options)) => slice::slice(&options, &envp),
        Ok(Command::Order(options)) => order::order(&options, &envp),
        Ok(Command::Races(options)) => races::races(&options, &envp),
        Ok(Command::Calls(options)) => answers::calls::calls(&options, &envp),
        Ok(Command::Writes(options)) => answers::writes::writes(&options, &envp),
        Ok(Command::Output(options)) => answers::output::output(&options, &envp),
        Ok(Command::Why(options)) => diagnose::why(&options, &envp),
        Ok(Command::Diagnose(options)) => diagnose::delta(&options, &envp),
        Ok(Command::Alerts(options)) => diagnose::alerts(&options, &envp),
        Ok(Command::Heap(options)) => diagnose::heap(&options, &envp),
        Ok(Command::Probe(options)) => probe::probe(&options, &envp),
        Ok(Command::Dap(options)) => serving::dap::dap(&options, &envp),
        Ok(Command::Mcp(options)) => serving::mcp::mcp(&options, &envp),
        Ok(Command::View(options)) => serving::view::view(&options, &envp),
        Ok(Command::Completions(options)) => describe::completions(&options),
        Ok(Command::Man(options)) => describe::man(&options),
        Ok(Command::Relog(options)) => weave::relog(&options, &envp),
        Ok(Command::Cut(options)) => cut::cut(&options, &envp),
        Ok(Command::Ctl(options)) => ctl::ctl(&options, &envp),
        Ok(Command::Save(options)) => tail::save(&options, &envp),
        Ok(Command::Ls(options)) => recordings::ls::ls(&options, &envp),
        Ok(Command::Info(options)) => recordings::info::info(&options, &envp),
        Ok(Command::Dump(options)) => recordings::dump::dump(&options, &envp),
        Ok(Command::Rm(options)) => recordings::rm::rm(&options, &envp),
        Ok(Command::Pack(options)) => recordings::pack::pack(&options, &envp),
        Ok(Command::Unpack(options)) => recordings::pack::unpack(&options, &envp),
        Ok(Command::Report(options)) => recordings::report::report(&options, &envp),
        Ok(Command::Hunt(options)) => hunt::hunt(&options, &envp),
        Ok(Command::Minimize(options)) => hunt::minimize::minimize(&options, &envp),
        Ok(Command::HuntGuard(options)) => hunt::guard(&options),
        Ok(Command::ExplainRun(options)) => hunt::explain::explain(&options, &envp),
        Ok(Command::HuntProfile(options)) => profile::profile(&options, &envp),
        Ok(Command::Doctor(options)) => doctor::doctor(&options, &envp),
        Ok(Command::Cache(options)) => cache::cache(&options, &envp),
        Err(status) => status,
    }
}

/// The strings of a NULL-terminated array.
///
/// # Safety
/// The array and its strings live as long as the process.
unsafe fn strings(mut array: *const *const c_char) -> Vec<&'static CStr> {
    let mut all = Vec::new();
    // SAFETY: the caller vouches for array and strings.
    unsafe {
        while !(*array).is_null() {
            all.push(CStr::from_ptr(*array));
            array = array.add(1);
        }
    }
    all
}
