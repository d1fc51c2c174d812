//! `remote_handle64_*`: libraries on the DSP, and calls of their methods.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering;
use std::time::Duration;

use hexflash_fastrpc::aee;
use hexflash_fastrpc::frame::{Ask, Words};

use crate::control::{CDSP, domain_of};
use crate::plan;
use crate::process::Process;
use crate::state::{Handle, MESSAGES, give, state, violation};

/// Methods of hexflash's library: what starts a session, and what takes a message.
const START: u32 = 2;
const RUN: u32 = 5;

/// Bytes of an argument that is a buffer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RemoteBuffer {
    data: *mut u8,
    bytes: usize,
}

/// An argument of a call.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub union RemoteArg {
    buffer: RemoteBuffer,
    handle: u64,
}
const _: () = assert!(size_of::<RemoteArg>() == 16);

/// What a URI names: the library's file, and the session.
fn parse(uri: &str) -> Option<(&str, u32)> {
    let rest = uri.strip_prefix("file:///")?;
    let (file, query) = rest.split_once('?')?;
    let mut words = query.split('&');
    let entry = words.next()?;
    let mut session = None;
    let mut domain = None;
    for word in words {
        match word.split_once('=')? {
            ("_modver", "1.0") => {}
            ("_dom", "cdsp") => domain = Some(()),
            ("_session", number) => session = Some(number.parse().ok()?),
            _ => return None,
        }
    }
    domain?;
    (entry == "hexflash_skel_handle_invoke").then_some((file, session.unwrap_or(0)))
}

/// Whether the DSP finds the library, and can run it.
fn loadable(file: &str, arch: u32, skels: Option<&str>) -> bool {
    let version = file.strip_prefix("libhexflash_skel_v").and_then(|rest| rest.strip_suffix(".so"));
    let Some(version) = version else { return false };
    let there = skels.is_none_or(|skels| skels.split(',').any(|skel| skel == version));
    let number = version.strip_suffix("_plain").unwrap_or(version);
    there && u32::from_str_radix(number, 16).is_ok_and(|version| version <= arch)
}

/// Opens a library on the DSP; with the first, a process begins.
///
/// # Safety
/// `uri` is a text that ends with 0; `handle` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_handle64_open(uri: *const c_char, handle: *mut u64) -> i32 {
    plan!("remote_handle64_open");
    let hang = state().config.number("hang-open").map(Duration::from_millis);
    hang.into_iter().for_each(std::thread::sleep);
    // SAFETY: `uri` is a text that ends with 0 (the caller's contract).
    let Ok(uri) = (unsafe { CStr::from_ptr(uri) }).to_str() else { return aee::BAD_PARAMETER };
    let Some((file, session)) = parse(uri) else { return aee::BAD_PARAMETER };
    let domain = domain_of(session);
    let mut locked = state();
    let config = locked.config.clone();
    let Some(session) = locked.sessions.get_mut(&domain) else { return aee::CONNECTION_REFUSED };
    if (domain != CDSP && !session.reserved) || session.process.as_ref().is_some_and(|p| p.is_dead()) {
        // What is left of a process that died must be closed first.
        return aee::BAD_STATE;
    }
    if !session.unsigned || !loadable(file, config.arch(), config.text("skels")) {
        return aee::on_dsp(aee::UNABLE_TO_LOAD);
    }
    if session.process.is_none() && !session.maps.is_empty() {
        drop(locked);
        violation("memory of a session that has ended is still mapped");
        return aee::BAD_STATE;
    }
    let process = match session.process.clone() {
        Some(process) => process,
        None => match Process::start(&config, domain, session.notifier) {
            Ok(process) => {
                session.process = Some(process.clone());
                process
            }
            Err(error) => {
                drop(locked);
                violation(&format!("the process on the DSP cannot be started: {error}"));
                return aee::CONNECTION_REFUSED;
            }
        },
    };
    drop(locked);
    let asked = process.ask(Ask::Open, Words::default().bytes(uri.as_bytes()));
    let on_dsp = match asked {
        Ok((0, mut words)) => words.number().ok(),
        Ok((code, _)) => {
            end_unless_used(domain);
            return code;
        }
        Err(_) => None,
    };
    let Some(on_dsp) = on_dsp else {
        end_unless_used(domain);
        return aee::CONNECTION_RESET;
    };
    let mut locked = state();
    let id = locked.next_handle;
    locked.next_handle += 1;
    locked.handles.insert(id, Handle { domain, process, on_dsp });
    if let Some(session) = locked.sessions.get_mut(&domain) {
        session.handles += 1;
    }
    // SAFETY: `handle` is null or valid for writing (the caller's contract).
    if unsafe { give(handle, id) } { 0 } else { aee::BAD_PARAMETER }
}

/// Ends a session's process if no library is open in it.
fn end_unless_used(domain: i32) {
    let mut locked = state();
    let Some(session) = locked.sessions.get_mut(&domain).filter(|session| session.handles == 0) else {
        return;
    };
    let process = session.process.take();
    session.reserved = false;
    session.unsigned = false;
    session.notifier = None;
    let left: Vec<i32> = session.maps.drain().map(|(fd, _)| fd).collect();
    let died = process.as_ref().is_some_and(|process| process.is_dead());
    drop(locked);
    if let Some(process) = process {
        process.end();
    }
    if !left.is_empty() && !died {
        violation(&format!("memory was still mapped at the end of a session (fds {left:?})"));
    }
}

fn find(handle: u64) -> Option<(std::sync::Arc<Process>, u64)> {
    state().handles.get(&handle).map(|handle| (handle.process.clone(), handle.on_dsp))
}

/// Calls a method.
///
/// # Safety
/// `args` are as many as the scalars say, each a buffer that is not null and valid for its length, input for
/// reading and output for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_handle64_invoke(handle: u64, scalars: u32, args: *mut RemoteArg) -> i32 {
    plan!("remote_handle64_invoke");
    if scalars >> 24 & 0x1f == RUN {
        plan!("run");
    }
    let Some((process, on_dsp)) = find(handle) else { return aee::BAD_PARAMETER };
    let method = scalars >> 24 & 0x1f;
    let (inputs, outputs) = ((scalars >> 16 & 0xff) as usize, (scalars >> 8 & 0xff) as usize);
    if method < 2 || scalars & 0xff != 0 {
        // Opening and closing have calls of their own; no method of ours takes handles.
        return aee::BAD_PARAMETER;
    }
    let mut words = Words::default().number(on_dsp).number(scalars.into());
    // SAFETY: `args` has as many arguments as the scalars say (the caller's contract), which are buffers, and
    // callers give an `i` below that.
    let buffer = |i: usize| unsafe { (*args.add(i)).buffer };
    for i in 0..inputs {
        let RemoteBuffer { data, bytes } = buffer(i);
        // SAFETY: input buffer `i` is not null and valid for reading `bytes` (the caller's contract).
        words = words.bytes(unsafe { std::slice::from_raw_parts(data, bytes) });
    }
    for i in inputs..inputs + outputs {
        words = words.number(buffer(i).bytes as u64);
    }
    let asked = process.ask(Ask::Invoke, words);
    if method == RUN {
        MESSAGES.fetch_add(1, Ordering::SeqCst);
    }
    let Ok((mut code, mut answer)) = asked else { return aee::CONNECTION_RESET };
    if method == START && state().config.text("forget") == Some("start") {
        // As with some drivers, what a method gives is lost.
        code = 0;
    }
    if code == 0 {
        for i in inputs..inputs + outputs {
            let RemoteBuffer { data, bytes } = buffer(i);
            match answer.bytes() {
                // SAFETY: `data` is valid for writing `bytes` (the caller's contract), which is the output's
                // length, by the condition; `output` is this process's own.
                Ok(output) if output.len() == bytes => unsafe {
                    std::ptr::copy_nonoverlapping(output.as_ptr(), data, bytes);
                },
                _ => return aee::CONNECTION_RESET,
            }
        }
    }
    code
}

/// Closes a library; with the last, the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn remote_handle64_close(handle: u64) -> i32 {
    let planned = crate::state::planned("remote_handle64_close");
    let Some(Handle { domain, process, on_dsp }) = state().handles.remove(&handle) else {
        return aee::BAD_PARAMETER;
    };
    let close = 1 << 24 | 1 << 4;
    let words = Words::default().number(on_dsp).number(close).number(on_dsp);
    let code = process.ask(Ask::Invoke, words).map_or(aee::CONNECTION_RESET, |(code, _)| code);
    if let Some(session) = state().sessions.get_mut(&domain) {
        session.handles -= 1;
    }
    end_unless_used(domain);
    planned.unwrap_or(code)
}

/// Quality of service of a library.
///
/// # Safety
/// `data` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_handle64_control(
    handle: u64,
    request: u32,
    data: *mut c_void,
    bytes: u32,
) -> i32 {
    plan!("remote_handle64_control");
    const LATENCY: u32 = 1;
    if find(handle).is_none() || data.is_null() || bytes != 8 {
        return aee::BAD_PARAMETER;
    }
    if request == LATENCY { 0 } else { aee::UNSUPPORTED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_library_and_session() {
        let uri = "file:///libhexflash_skel_v75.so?hexflash_skel_handle_invoke&_modver=1.0&_dom=cdsp";
        assert_eq!(parse(uri), Some(("libhexflash_skel_v75.so", 0)));
        assert_eq!(parse(&format!("{uri}&_session=1")), Some(("libhexflash_skel_v75.so", 1)));
        assert_eq!(parse(&uri.replace("&_dom=cdsp", "")), None);
        assert_eq!(parse(&uri.replace("hexflash_skel_h", "other_h")), None);
    }

    #[test]
    fn a_dsp_runs_libraries_of_its_own_version_and_older_ones() {
        let file = |v| format!("libhexflash_skel_v{v}.so");
        assert!(loadable(&file("73"), 0x75, None) && loadable(&file("75"), 0x75, Some("73,75")));
        assert!(!loadable(&file("79"), 0x75, None) && !loadable(&file("75"), 0x75, Some("73")));
        assert!(!loadable("libother.so", 0x75, None));
    }
}
