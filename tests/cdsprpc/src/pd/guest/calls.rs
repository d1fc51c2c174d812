//! What the skel imports, answered by what this process plays. Its addresses are valid here, but a pointer
//! has 4 bytes there.

use std::ffi::{CString, c_void};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use hexflash_fastrpc::aee;
use hexflash_fastrpc::queue::{Buffer, Packet};
use hexflash_guest::wire::{Answer, Ask, CALLBACK, CALLBACKS, ENTRY_BYTES, IMPORTS, PAGE, act};
use rustix::mm::ProtFlags;

use super::{Guest, STARTING, busy_engine, get, mapping, paint, put};
use crate::queue::{self, Announced};
use crate::state::{CONFIG, violation};
use crate::{hap, qurt, views, vtcm};

/// Queues that the skel has open; its handle is a place here, from 1.
static QUEUES: Mutex<Vec<Option<Arc<Announced>>>> = Mutex::new(Vec::new());

/// Attributes of a thread as QuRT has them: where priority, bytes and address of the stack are.
const ATTRIBUTES: usize = 36;
const PRIORITY: usize = 18;
const STACK_BYTES: usize = 24;
const STACK_ADDRESS: usize = 28;
/// Bytes of what `compute_resource_attr_*` fill in, and of a request for power.
const RESOURCE: usize = 64;
const POWER: usize = 120;

fn pointer<T>(address: u32) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Whether so many bytes at an address are the guest's; a breach if not.
fn there(address: u32, bytes: usize) -> bool {
    let there = views::is_low(address as usize, bytes);
    if !there {
        violation(&format!("{bytes} bytes at {address:#x} are no memory of the library"));
    }
    there
}

/// So many bytes in whole pages.
fn pages(bytes: usize) -> u32 {
    bytes.next_multiple_of(PAGE) as u32
}

fn word(address: u32) -> u32 {
    let mut word = [0; 4];
    if there(address, 4) {
        get(address as usize, &mut word);
    }
    u32::from_le_bytes(word)
}

fn give(address: u32, word: u32) {
    if there(address, 4) {
        put(address as usize, &word.to_le_bytes());
    }
}

fn value(code: i32) -> Answer {
    Answer { value: code as u32, ..Answer::default() }
}

fn acting(code: i32, act: u32, words: [u32; 6]) -> Answer {
    Answer { value: code as u32, act, words }
}

/// Answers a call of what the skel imports.
pub(super) fn answer(question: &Ask, guest: &Guest) -> Answer {
    let [a, b, c, d, e, f] = question.registers;
    let stacked = |i: u32| word(question.stack + 4 * i);
    let bad = value(aee::on_dsp(aee::BAD_PARAMETER));
    let Some(name) = IMPORTS.get(question.what as usize) else { return bad };
    match *name {
        "HAP_mmap" | "HAP_mmap2" => {
            let (at, access, flags, fd) = (pointer(a), c as i32, d as i32, e as i32);
            let mapped = match *name {
                "HAP_mmap" => hap::HAP_mmap(at, b as i32, access, flags, fd, f as i32),
                _ => hap::HAP_mmap2(at, b as usize, access, flags, fd, f.into()),
            };
            let failed = Answer { value: u32::MAX, ..Answer::default() };
            mapping(mapped.addr(), 3).unwrap_or(failed)
        }
        "HAP_munmap" | "HAP_munmap2" => {
            let bytes = views::file_at(a as usize).map_or(0, |(bytes, _)| bytes);
            let unmapped = match *name {
                "HAP_munmap" => hap::HAP_munmap(pointer(a), b as i32),
                _ => hap::HAP_munmap2(pointer(a), b as usize),
            };
            match unmapped {
                0 => acting(0, act::UNMAP, [a, bytes as u32, 0, 0, 0, 0]),
                code => value(code),
            }
        }
        "HAP_power_set" if there(b, POWER) => {
            // SAFETY: the request is memory of this process, too, which its caller leaves alone meanwhile.
            value(unsafe { hap::HAP_power_set(pointer(a), pointer(b)) })
        }
        "HAP_debug_v2" => {
            hap::log(&text(d), &text(stacked(0)));
            value(0)
        }
        "memalign" => {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let base = (a.is_power_of_two() && b > 0).then(|| views::low(b as usize, access)).flatten();
            let answer = base.and_then(|base| mapping(base, 3)).unwrap_or_default();
            HEAP.lock().unwrap_or_else(PoisonError::into_inner).extend(base);
            answer
        }
        "free" => {
            let mut heap = HEAP.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(at) = heap.iter().position(|&base| base == a as usize) else {
                violation(&format!("free of {a:#x}, which was not allocated"));
                return value(0);
            };
            heap.swap_remove(at);
            let bytes = views::file_at(a as usize).map_or(0, |(bytes, _)| bytes);
            views::free_low(a as usize, bytes);
            acting(0, act::UNMAP, [a, bytes as u32, 0, 0, 0, 0])
        }
        "qurt_sleep" => {
            busy_engine(question, "a thread went to sleep");
            qurt::qurt_sleep(u64::from(a) | u64::from(b) << 32);
            value(0)
        }
        "qurt_thread_get_id" => value(1),
        "qurt_thread_get_priority" => value(qurt::qurt_thread_get_priority(a)),
        "sysmon_set_dcvs_v3_protected_bus_corners" if there(a, POWER) => {
            // SAFETY: the request is memory of this process, too, which its caller leaves alone meanwhile.
            value(unsafe { hap::sysmon_set_dcvs_v3_protected_bus_corners(pointer(a), b) })
        }
        "qurt_mem_cache_clean" => value(hap::qurt_mem_cache_clean(a as usize, b as usize, c, d)),
        "abort" => {
            violation("the library has called abort");
            queue::end_process()
        }
        "qurt_hvx_lock" => match (qurt::qurt_hvx_lock(a), CONFIG.text("forget")) {
            // As if the skel had not asked.
            (0, Some("lock")) => value(0),
            (0, _) => acting(0, act::CONTEXT, [1, 0, 0, 0, 0, 0]),
            (code, _) => value(code),
        },
        "qurt_hvx_unlock" => {
            busy_engine(question, "a thread gave its vector context back");
            acting(qurt::qurt_hvx_unlock(), act::CONTEXT, [0; 6])
        }
        "qurt_thread_create" if there(b, ATTRIBUTES) => create_thread(a, b, c, d),
        "qurt_thread_join" => {
            give(b, 0);
            acting(qurt::join(a), act::JOIN, [a, 0, 0, 0, 0, 0])
        }
        name if name.starts_with("compute_resource") => resource(name, question),
        "dspqueue_import" => {
            let id = u64::from(a) | u64::from(b) << 32;
            if (c == 0) != (d == 0) {
                return bad;
            }
            match queue::import(id, c != 0) {
                Ok(queue) => {
                    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
                    queues.push(Some(Arc::clone(&queue)));
                    let handle = queues.len() as u32;
                    give(f, handle);
                    if c == 0 { value(0) } else { start_caller(guest, Caller { queue, handle, callback: c }) }
                }
                Err(code) => value(code),
            }
        }
        CALLBACKS => call_back(),
        "dspqueue_close" => {
            let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
            let queue = (a as usize).checked_sub(1).and_then(|i| queues.get_mut(i)).and_then(Option::take);
            drop(queues);
            queue.map_or(bad, |queue| {
                queue.close();
                let ended = CALLER_ENDS.lock().unwrap_or_else(PoisonError::into_inner).take();
                // Nothing is sent: the thread's end closes the channel.
                let _ = ended.map(|ended| ended.recv());
                value(0)
            })
        }
        "dspqueue_peek" => {
            let Some(queue) = open_queue(a) else { return bad };
            busy_engine(question, "a message was waited for");
            value(queue.peek(e))
        }
        "dspqueue_read_noblock" => {
            let Some(queue) = open_queue(a) else { return bad };
            let (max_buffers, max_message) = (c, f);
            let (bytes, message) = (stacked(0), stacked(1));
            let room =
                [(b, 4), (d, 4), (bytes, 4), (e, 24 * max_buffers as usize), (message, max_message as usize)];
            if !room.into_iter().all(|(address, bytes)| there(address, bytes)) {
                return bad;
            }
            match queue.receive(max_buffers, max_message) {
                Ok(packet) => {
                    // SAFETY: all of these are memory of this process, too, as long as the limits say, by the
                    // check above; their caller leaves them alone meanwhile.
                    unsafe {
                        packet.hand_out(
                            pointer(b),
                            (pointer(e), pointer(d)),
                            (pointer(message), pointer(bytes)),
                        );
                    }
                    value(0)
                }
                Err(code) => value(code),
            }
        }
        "dspqueue_write" => {
            let Some(queue) = open_queue(a) else { return bad };
            busy_engine(question, "an answer was sent");
            let (n, bytes, message, timeout) = (c, e, f, stacked(0));
            if n > 0 && !there(d, n as usize * size_of::<Buffer>()) || !there(message, bytes as usize) {
                return bad;
            }
            // SAFETY: both are memory of this process, too, by the check above, and their caller leaves them
            // alone meanwhile.
            let (buffers, message) = unsafe { Packet::parts((pointer(d), n), (pointer(message), bytes)) };
            let packet = Packet { flags: b, buffers: buffers.to_vec(), message: message.to_vec() };
            value(queue.send(&packet, timeout).err().unwrap_or(0))
        }
        _ => bad,
    }
}

/// Blocks of the library's heap.
static HEAP: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Blocks that are left at the end.
pub(super) fn heap_blocks() -> usize {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner).len()
}

/// Who calls back when packets come: the queue, its handle, and the function.
#[derive(Clone)]
struct Caller {
    queue: Arc<Announced>,
    handle: u32,
    callback: u32,
}

static CALLER: Mutex<Option<(Caller, u32)>> = Mutex::new(None);
/// Closed when the thread has ended that calls back.
static CALLER_ENDS: Mutex<Option<Receiver<()>>> = Mutex::new(None);

/// Starts the thread of the queue's library that calls back.
fn start_caller(guest: &Guest, caller: Caller) -> Answer {
    /// No number that QuRT gives here: those are above 0x100.
    const NUMBER: u32 = 0x3f;
    // One less than what was written counts as seen: the importer may have come after the first packet.
    let seen = caller.queue.written().wrapping_sub(1);
    *CALLER.lock().unwrap_or_else(PoisonError::into_inner) = Some((caller, seen));
    let (end, ended) = channel();
    paint(guest.callbacks);
    STARTING.lock().unwrap_or_else(PoisonError::into_inner).insert(NUMBER, (end, guest.callbacks));
    *CALLER_ENDS.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    let entry = guest.entries.load(Ordering::SeqCst) + CALLBACK * ENTRY_BYTES;
    acting(0, act::CLONE, [entry, 0, (guest.callbacks.0 + guest.callbacks.1) as u32, NUMBER, 0, 0])
}

/// Function that the thread is to call when the next packet is there; none when the queue is closed.
fn call_back() -> Answer {
    let caller = CALLER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some((caller, mut seen)) = caller else { return Answer::default() };
    if !caller.queue.wait_for_packet(&mut seen) {
        return Answer::default();
    }
    let (handle, callback) = (caller.handle, caller.callback);
    *CALLER.lock().unwrap_or_else(PoisonError::into_inner) = Some((caller, seen));
    acting(0, act::CALL, [callback, handle, 0, 0, 0, 0])
}

/// A text of the guest's that ends with 0, or as much of it as is there.
fn text(address: u32) -> CString {
    let bytes = (address..).map_while(|at| {
        let mut byte = [0];
        if !views::is_low(at as usize, 1) {
            return None;
        }
        get(at as usize, &mut byte);
        (byte[0] != 0).then_some(byte[0])
    });
    CString::new(bytes.collect::<Vec<_>>()).unwrap_or_default()
}

fn open_queue(handle: u32) -> Option<Arc<Announced>> {
    let queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    queues.get((handle as usize).checked_sub(1)?)?.clone()
}

/// Starts a thread on the stack that its attributes name.
fn create_thread(id: u32, attributes: u32, entry: u32, argument: u32) -> Answer {
    let mut bytes = [0; ATTRIBUTES];
    get(attributes as usize, &mut bytes);
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let priority = u16::from_le_bytes([bytes[PRIORITY], bytes[PRIORITY + 1]]);
    let (address, length) = (word(STACK_ADDRESS), word(STACK_BYTES));
    if !there(address, length as usize) {
        return value(aee::on_dsp(aee::BAD_PARAMETER));
    }
    let stack = (address as usize, length as usize);
    let created = qurt::create(stack, priority, |number| {
        paint(stack);
        let (end, ended) = channel();
        STARTING.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (end, stack));
        // Nothing is sent: the thread's end closes the channel.
        Some(Box::new(move || ended.recv().is_err()))
    });
    match created {
        Ok(number) => {
            give(id, number);
            acting(0, act::CLONE, [entry, argument, address + length, number, 0, 0])
        }
        Err(code) => value(code),
    }
}

/// The resource manager.
fn resource(name: &str, question: &Ask) -> Answer {
    let [a, b, c, d, ..] = question.registers;
    let takes_attributes = name.starts_with("compute_resource_attr") || name == "compute_resource_acquire";
    if takes_attributes && !there(a, RESOURCE) {
        return value(aee::on_dsp(aee::BAD_PARAMETER));
    }
    let attributes = pointer(a);
    let closing = |code| match vtcm::place() {
        Some((base, bytes)) if code == 0 => {
            let access = if vtcm::is_held() { 3 } else { 0 };
            acting(0, act::PROTECT, [base as u32, pages(bytes), access, 0, 0, 0])
        }
        _ => value(code),
    };
    // SAFETY: where attributes are taken, they are memory of this process, too, by the check above, and their
    // caller leaves them alone meanwhile.
    unsafe {
        match name {
            "compute_resource_attr_init" => value(vtcm::compute_resource_attr_init(attributes)),
            "compute_resource_attr_init_v2" if there(a, b as usize) => {
                value(vtcm::compute_resource_attr_init_v2(attributes, b, c))
            }
            "compute_resource_update_priority" => value(vtcm::compute_resource_update_priority(a, b)),
            "compute_resource_attr_set_serialize" => {
                value(vtcm::compute_resource_attr_set_serialize(attributes, b as u8))
            }
            "compute_resource_attr_set_cache_mode" => {
                value(vtcm::compute_resource_attr_set_cache_mode(attributes, b as u8))
            }
            "compute_resource_attr_set_vtcm_param_v2" => {
                value(vtcm::compute_resource_attr_set_vtcm_param_v2(attributes, b, c, d))
            }
            "compute_resource_attr_set_hmx_param" => {
                value(vtcm::compute_resource_attr_set_hmx_param(attributes, b as u8))
            }
            "compute_resource_hmx_lock" => match (vtcm::compute_resource_hmx_lock(a), vtcm::place()) {
                // As if the skel had not asked.
                (0, _) if CONFIG.text("forget") == Some("hmx") => value(0),
                (0, Some((base, bytes))) => {
                    acting(0, act::MATRIX_UNIT, [1, base as u32, bytes as u32, 0, 0, 0])
                }
                (code, _) => value(code),
            },
            "compute_resource_hmx_unlock" => match vtcm::compute_resource_hmx_unlock(a) {
                0 if CONFIG.text("forget") == Some("hmx") => value(0),
                0 => acting(0, act::MATRIX_UNIT, [0; 6]),
                code => value(code),
            },
            "compute_resource_attr_set_release_callback" => {
                let (callback, argument) = (pointer::<c_void>(b), pointer(c));
                value(vtcm::compute_resource_attr_set_release_callback(attributes, callback, argument))
            }
            "compute_resource_acquire" => {
                let context = vtcm::compute_resource_acquire(attributes, b);
                let access = if vtcm::is_held() { 3 } else { 0 };
                match vtcm::place().filter(|_| context != 0).and_then(|(base, _)| mapping(base, access)) {
                    Some(answer) => Answer { value: context, ..answer },
                    None => Answer::default(),
                }
            }
            "compute_resource_attr_get_vtcm_ptr_v2" => match vtcm::place() {
                Some((base, bytes)) => {
                    give(b, base as u32);
                    give(c, bytes as u32);
                    value(0)
                }
                None => value(aee::on_dsp(aee::BAD_STATE)),
            },
            "compute_resource_release" => {
                let place = vtcm::place();
                let code = vtcm::compute_resource_release(a);
                match place {
                    Some((base, bytes)) if code == 0 => {
                        acting(0, act::UNMAP, [base as u32, pages(bytes), 0, 0, 0, 0])
                    }
                    _ => value(code),
                }
            }
            "compute_resource_acquire_cached" => closing(vtcm::compute_resource_acquire_cached(a, b)),
            "compute_resource_release_cached" => {
                busy_engine(question, "the scratchpad was lent");
                closing(vtcm::compute_resource_release_cached(a))
            }
            _ => value(aee::on_dsp(aee::UNSUPPORTED)),
        }
    }
}
