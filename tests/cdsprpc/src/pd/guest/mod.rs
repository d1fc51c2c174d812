//! The other way to play the DSP (`dsp=qemu`): the skel itself, the very file that phones load, under the
//! emulator.
//!
//! The emulator runs `hexflash-guest`, whose memory lies at the same addresses as here. Each of its threads
//! has a connection, which a thread here answers; so a thread there and its thread here are one to all that
//! this process plays. The emulator executes the DMA instructions, as late as a program may expect, and stops
//! a thread that executes vectors without a vector context.

mod calls;
mod image;
mod process;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use hexflash_fastrpc::aee;
use hexflash_guest::wire::{Answer, Ask, PAGE, act, ask};
use rustix::mm::ProtFlags;
use zerocopy::{FromZeros, IntoBytes};

use crate::queue;
use crate::qurt::{self, Stack};
use crate::state::{CONFIG, violation};
use crate::views;
use image::Image;
use process::Process;

/// What FastRPC calls.
const ENTRY: &str = "hexflash_skel_handle_invoke";
/// Bytes for the list of a call's arguments, for each buffer among them, and for the stack of the thread that
/// FastRPC calls on.
const ARGUMENTS: usize = PAGE;
const STACK: usize = PAGE;
/// Most buffers of a call.
const BUFFERS: usize = 3;
/// A stack's lowest bytes: who comes so far may have come further.
const RESERVE: usize = 1024;
/// What unused bytes of a stack are.
const UNUSED: u8 = 0xd5;
/// What an engine does that is not idle.
const RUNNING: u32 = 1;

/// Whether this is how the DSP is played.
pub(crate) fn is_on() -> bool {
    CONFIG.text("dsp") == Some("qemu")
}

/// The emulated process, and how to call the skel in it.
struct Guest {
    image: Image,
    process: Process,
    arguments: usize,
    /// Places of a call's buffers, which end with a page behind which the guest has none.
    buffers: [usize; BUFFERS],
    stack: Stack,
    /// The stack of the thread that calls back for a queue.
    callbacks: Stack,
    /// Address of the entries of imported functions; 0 before the guest has said so.
    entries: AtomicU32,
    /// To the thread that calls the skel: the next call, or that there is none; and back: the code.
    line: Mutex<(Sender<Option<Call>>, Receiver<u32>)>,
    /// The other end, until that thread has it.
    far_end: Mutex<Option<FarEnd>>,
}

/// What the thread has that calls the skel.
type FarEnd = (Receiver<Option<Call>>, Sender<u32>);

/// A call of the skel's entry; the arguments lie in memory already.
#[derive(Clone, Copy)]
struct Call {
    handle: u64,
    scalars: u32,
}

static GUEST: OnceLock<Guest> = OnceLock::new();

/// A thread that begins: who waits for its end is told by the end of the sender.
type Starting = (Sender<()>, Stack);

/// By their numbers.
static STARTING: LazyLock<Mutex<HashMap<u32, Starting>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// Where the call came from that this thread answers.
    static FROM: Cell<Option<u32>> = const { Cell::new(None) };
    /// What the thread is to call before the answer counts.
    static LATER: RefCell<Option<(u32, [u32; 2])>> = const { RefCell::new(None) };
}

/// Where in the skel the call came from that this thread answers.
pub(crate) fn place() -> Option<String> {
    let (guest, from) = (GUEST.get()?, FROM.get()?);
    Some(format!("called from {}", guest.image.place(from)))
}

/// Makes a thread of the guest call a function: the one whose call this thread answers, or the next that has
/// nothing else to do; `false` if there is no guest.
pub(crate) fn call_later(function: u32, arguments: [u32; 2]) -> bool {
    match FROM.get() {
        Some(_) => LATER.set(Some((function, arguments))),
        None => *PENDING.lock().unwrap_or_else(PoisonError::into_inner) = Some((function, arguments)),
    }
    is_on()
}

/// A call for any thread.
static PENDING: Mutex<Option<(u32, [u32; 2])>> = Mutex::new(None);

/// Loads the library that a URI names and starts the process, unless that is done.
pub(crate) fn start(uri: &[u8]) -> io::Result<()> {
    if GUEST.get().is_some() {
        return Ok(());
    }
    let name = String::from_utf8_lossy(uri);
    let name = name.strip_prefix("file:///").and_then(|rest| rest.split('?').next()).unwrap_or_default();
    let folder = CONFIG.file("library").ok_or_else(|| io::Error::other("dsp=qemu needs library=FOLDER"))?;
    let mut image = Image::load(&folder.join(name), ENTRY).map_err(io::Error::other)?;
    if CONFIG.text("forget") == Some("wait") {
        image.forget_to_wait();
    }
    if let Some(group) = CONFIG.text("refuse") {
        image.refuse(group);
    }
    if CONFIG.text("sums") == Some("differences") {
        image.make_sums_differences();
    }
    let room = || io::Error::other("no room for the guest's memory");
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let arguments = views::low(ARGUMENTS, access).ok_or_else(room)?;
    let mut buffers = [0; BUFFERS];
    for buffer in &mut buffers {
        // The guest maps the first page.
        *buffer = views::low(ARGUMENTS + PAGE, access).ok_or_else(room)?;
    }
    let stack = (views::low(STACK, access).ok_or_else(room)?, STACK);
    let callbacks = (views::low(STACK, access).ok_or_else(room)?, STACK);
    let entries = AtomicU32::new(0);
    let socket = format!("hexflash-pd-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&socket)?)?;
    let (calls, next) = channel();
    let (done, codes) = channel();
    paint(stack);
    let process = Process::start(&folder, &socket)?;
    let line = Mutex::new((calls, codes));
    let far_end = Mutex::new(Some((next, done)));
    let guest = Guest { image, process, arguments, buffers, stack, callbacks, entries, line, far_end };
    if GUEST.set(guest).is_err() {
        return Err(io::Error::other("a second library"));
    }
    std::thread::spawn(move || {
        while let Ok((connection, _)) = listener.accept() {
            std::thread::spawn(move || answer_thread(connection));
        }
    });
    Ok(())
}

/// Calls the skel.
pub(crate) fn invoke(handle: u64, scalars: u32, buffers: &mut [Vec<u8>], handles: &mut [u64]) -> i32 {
    let Some(guest) = GUEST.get() else { return aee::on_dsp(aee::FAILED) };
    // Arguments of 8 bytes each: address and length, or a handle.
    let args = guest.arguments;
    if buffers.len() > BUFFERS || buffers.iter().any(|buffer| buffer.len() > ARGUMENTS) {
        return aee::on_dsp(aee::NO_MEMORY);
    }
    let places: Vec<_> = guest
        .buffers
        .iter()
        .zip(&*buffers)
        .map(|(at, buffer)| (at + ARGUMENTS - buffer.len(), buffer.len()))
        .collect();
    for (i, (&(place, bytes), buffer)) in places.iter().zip(&*buffers).enumerate() {
        put(place, buffer);
        put(args + 8 * i, (place as u64 | (bytes as u64) << 32).as_bytes());
    }
    let handles_at = args + 8 * buffers.len();
    put(handles_at, handles.as_bytes());
    let line = guest.line.lock().unwrap_or_else(PoisonError::into_inner);
    let code = match line.0.send(Some(Call { handle, scalars })) {
        Ok(()) => line.1.recv().unwrap_or_else(|_| guest.process.is_lost()),
        Err(_) => guest.process.is_lost(),
    };
    for (&(place, _), buffer) in places.iter().zip(buffers) {
        get(place, buffer);
    }
    get(handles_at, handles.as_mut_bytes());
    code as i32
}

/// Ends the process; nothing may be left in it.
pub(crate) fn end() {
    let Some(guest) = GUEST.get() else { return };
    if let Some(at) = guest.image.overwritten() {
        violation(&format!(
            "code or constants of the library were overwritten at {}",
            guest.image.place(at as u32)
        ));
    }
    if calls::heap_blocks() > 0 {
        violation(&format!("{} blocks of memory were not freed", calls::heap_blocks()));
    }
    check_stack(guest.stack);
    let line = guest.line.lock().unwrap_or_else(PoisonError::into_inner);
    if line.0.send(None).is_ok() {
        guest.process.wait();
    }
}

fn put(at: usize, bytes: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(at);
    // SAFETY: callers name memory of `views::low` with room for the bytes, which nobody uses meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

fn get(at: usize, bytes: &mut [u8]) {
    let from = std::ptr::with_exposed_provenance::<u8>(at);
    // SAFETY: callers name memory of `views::low` that has as many bytes, which nobody uses meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
}

/// Marks all of a stack as unused.
fn paint(stack: Stack) {
    put(stack.0, &vec![UNUSED; stack.1]);
}

/// How far a stack was used is seen by what is left of the marks.
fn check_stack(stack: Stack) {
    let mut bytes = vec![0; RESERVE];
    get(stack.0, &mut bytes);
    if bytes.iter().any(|&byte| byte != UNUSED) {
        violation(&format!("a thread has used all of its stack of {} bytes, or more", stack.1));
    }
}

/// What a thread of the guest has.
#[derive(Default)]
struct Thread {
    /// The first: it calls the skel.
    line: Option<FarEnd>,
    /// What is still to be mapped before the first call.
    mappings: Vec<Answer>,
    called: bool,
    /// The others: who waits for the end.
    end: Option<Starting>,
}

/// Answers a thread of the guest until it ends.
fn answer_thread(mut connection: UnixStream) {
    let Some(guest) = GUEST.get() else { return };
    let mut thread = Thread::default();
    loop {
        let mut question = Ask::new_zeroed();
        if connection.read_exact(question.as_mut_bytes()).is_err() {
            return;
        }
        FROM.set(Some(question.from).filter(|from| *from != 0));
        let answer = thread.answer(guest, &question);
        FROM.set(None);
        if connection.write_all(answer.as_bytes()).is_err() {
            return;
        }
        if question.what == ask::END {
            // What its stack has seen no longer changes.
            return drop(thread);
        }
    }
}

fn mapping(base: usize, access: u32) -> Option<Answer> {
    let (bytes, _) = views::file_at(base)?;
    mapping_of(base, bytes, access)
}

/// Mapping of the first bytes of some memory.
fn mapping_of(base: usize, bytes: usize, access: u32) -> Option<Answer> {
    let (_, file) = views::file_at(base)?;
    let words = [base as u32, bytes as u32, file as u32, access, 0, 0];
    Some(Answer { value: base as u32, act: act::MAP, words })
}

impl Thread {
    fn answer(&mut self, guest: &Guest, question: &Ask) -> Answer {
        let [a, b, c, d, ..] = question.registers;
        match question.what {
            ask::BEGIN if a == 0 => {
                self.line = guest.far_end.lock().unwrap_or_else(PoisonError::into_inner).take();
                guest.image.bind(b);
                const ALL: u32 = 7;
                let image = mapping(guest.image.base, ALL);
                guest.entries.store(b, Ordering::SeqCst);
                let memory = [guest.arguments, guest.stack.0, guest.callbacks.0].map(|base| mapping(base, 3));
                let protect = guest.image.pages.iter().map(|&(at, bytes, access)| Answer {
                    act: act::PROTECT,
                    words: [(guest.image.base + at) as u32, bytes as u32, access, 0, 0, 0],
                    ..Answer::default()
                });
                let buffers = guest.buffers.map(|base| mapping_of(base, ARGUMENTS, 3));
                let memory = memory.into_iter().chain(buffers).flatten();
                self.mappings = protect.chain(memory).chain(image).collect();
                Answer::default()
            }
            ask::BEGIN => {
                self.end = STARTING.lock().unwrap_or_else(PoisonError::into_inner).remove(&a);
                Answer::default()
            }
            ask::END => {
                busy_engine(question, "a thread ended");
                qurt::check_thread();
                if let Some((_, stack)) = &self.end {
                    check_stack(*stack);
                }
                Answer::default()
            }
            ask::SLEEP => {
                busy_engine(question, "a thread went to sleep");
                Answer::default()
            }
            ask::NEXT => self.next_call(guest, a),
            ask::FAULT => {
                let place = |address| guest.image.place(address);
                let words = guest.process.words();
                violation(&format!(
                    "the library's process got signal {a} at {}; called from {}; address {c:#x}; {words}",
                    place(b),
                    place(d)
                ));
                queue::end_process()
            }
            _ => {
                let mut answer = calls::answer(question, guest);
                if answer.act == act::NONE {
                    let pending = || PENDING.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some((function, [a, b])) = LATER.take().or_else(pending) {
                        answer = Answer { act: act::CALL, words: [function, a, b, 0, 0, 0], ..answer };
                    }
                }
                answer
            }
        }
    }

    fn next_call(&mut self, guest: &Guest, code: u32) -> Answer {
        if let Some(answer) = self.mappings.pop() {
            return answer;
        }
        let Some((calls, codes)) = &self.line else { return exit() };
        if std::mem::replace(&mut self.called, true) && codes.send(code).is_err() {
            return exit();
        }
        match calls.recv() {
            Ok(Some(Call { handle, scalars })) => {
                let function = (guest.image.base + guest.image.entry) as u32;
                let stack = (guest.stack.0 + guest.stack.1) as u32;
                let handle = [handle as u32, (handle >> 32) as u32];
                let words = [function, handle[0], handle[1], scalars, guest.arguments as u32, stack];
                Answer { value: 0, act: act::INVOKE, words }
            }
            _ => exit(),
        }
    }
}

fn exit() -> Answer {
    Answer { act: act::EXIT, ..Answer::default() }
}

/// The emulator has ended, and was not told to.
fn lost(status: ExitStatus) -> ! {
    let words = GUEST.get().map(|guest| guest.process.words()).unwrap_or_default();
    violation(&format!("the emulator has ended with {status}: {words}"));
    queue::end_process()
}

/// Reports an engine that is at work where nobody will wait for it.
fn busy_engine(question: &Ask, what: &str) {
    if question.dma & 3 == RUNNING {
        violation(&format!("{what} with DMA under way: nobody waits for {:#x}", question.dma & !3));
    }
}
