//! A client with nothing behind its link: what it says, and what it keeps. The link is the smallest that
//! there is, to begin a new one with.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hexflash_abi::message::{MapFlags, MatrixUnit, Message, Ping, Request, Response};
use hexflash_abi::status::{ErrorCode, Fault, Status};
use hexflash_abi::{BufferId, Fd, Seq};
use zerocopy::FromBytes;

use super::Client;
use crate::device::memory::Pages;
use crate::device::{
    CostUnit, Device, DeviceError, DeviceInfo, DeviceOptions, DeviceSession, Link, Memory, Offer,
    SharedMemory, Source,
};

/// A link to nobody: each request is a success, but for those that it is told to treat otherwise.
#[derive(Default)]
struct Null {
    requests: VecDeque<Request>,
    /// Sessions that were started before this one.
    restarts: u32,
    /// Whether the first session answers nothing, and another way is tried then.
    is_mute: bool,
    /// Answer to requests that map.
    to_map: Answer,
}

/// An answer of the link.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    Success,
    Refusal,
    Silence,
}

impl Link for Null {
    type Memory = Arc<Pages>;
    type Mapping = Arc<Pages>;

    fn open(options: &DeviceOptions, _number: usize) -> Result<(Self, DeviceInfo), DeviceError> {
        let info = DeviceInfo {
            name: "null".to_owned(),
            description: "nothing".to_owned(),
            threads: options.threads.unwrap_or(1) as u32,
            vtcm_bytes: 0,
            sessions: 1,
            arena_bytes: 0,
            matrix_unit: MatrixUnit::None,
            cost_unit: CostUnit::Nanoseconds,
        };
        Ok((Self::default(), info))
    }

    fn send(&mut self, request: &[u8]) -> Result<(), DeviceError> {
        let request = Request::read_from_bytes(request);
        self.requests.push_back(request.map_err(|_| DeviceError::QueueFull)?);
        Ok(())
    }

    fn receive(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        let silent = DeviceError::Timeout(timeout);
        let Some(request) = self.requests.pop_front() else { return Err(silent) };
        let maps = matches!(Message::decode(&request), Ok(Message::Map(_)));
        match self.to_map {
            _ if self.is_mute && self.restarts == 0 => Err(silent),
            Answer::Silence if maps => Err(silent),
            Answer::Refusal if maps => {
                Ok(Response::fault(request.seq, Status::Refused, Fault::new(ErrorCode::MapFailed, 0)))
            }
            _ => Ok(Response::ok(request.seq)),
        }
    }

    fn zeroed(&mut self, bytes: u64) -> Result<Arc<Pages>, DeviceError> {
        Pages::zeroed(bytes as usize).map(Arc::new).map_err(|source| DeviceError::Memory { bytes, source })
    }

    fn holding(&mut self, source: Arc<dyn Source>) -> Result<Arc<Pages>, DeviceError> {
        self.zeroed(source.bytes())
    }

    fn recognise(&self, memory: &SharedMemory) -> Result<Arc<Pages>, DeviceError> {
        memory.shared_as()
    }

    fn handle(memory: &Arc<Pages>) -> SharedMemory {
        SharedMemory::new(Arc::clone(memory) as Arc<_>)
    }

    fn offer(&mut self, memory: Arc<Pages>) -> Result<Offer<Arc<Pages>>, DeviceError> {
        Ok(Offer { name: Fd(7), bytes: memory.len() as u64, flags: MapFlags::empty(), mapping: memory })
    }

    fn memory(mapping: &Arc<Pages>) -> Arc<Pages> {
        Arc::clone(mapping)
    }

    fn stop(&mut self) {
        self.requests.clear();
    }

    fn start(&mut self) -> Result<(), DeviceError> {
        self.restarts += 1;
        Ok(())
    }

    fn quick(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn tries_another_way(&mut self) -> bool {
        self.is_mute && self.restarts == 0
    }

    fn copies_imports(&self) -> bool {
        true
    }
}

fn open() -> Client<Null> {
    Client::open(&DeviceOptions::default()).unwrap()
}

/// A buffer's memory, as long as anybody keeps it.
fn allocate(device: &mut Client<Null>) -> (Result<BufferId, DeviceError>, Weak<Pages>) {
    let memory = device.link.zeroed(1).unwrap();
    let weak = Arc::downgrade(&memory);
    (device.map(memory).map(|buffer| buffer.id), weak)
}

#[test]
fn requests_and_buffers_are_counted_from_the_start_of_a_session() {
    let mut device = open();
    for _ in 0..2 {
        let ids = [0, 1].map(|_| allocate(&mut device).0.unwrap());
        assert_eq!(ids, [BufferId(0), BufferId(1)]);
        // After the first message and two mappings.
        assert_eq!(device.submit(&Message::Ping(Ping::OURS)).unwrap(), Seq(3));
        assert_eq!(device.wait(Duration::ZERO).unwrap().seq, Seq(3));
        device.reset().unwrap();
    }
}

#[test]
fn a_mapping_is_kept_until_it_is_unmapped() {
    let mut device = open();
    let buffer = device.allocate(64).unwrap();
    let weak = Arc::downgrade(&device.link.recognise(&buffer.memory).unwrap());
    let id = buffer.id;
    device.free(buffer).unwrap();
    assert!(weak.upgrade().is_none());
    assert_eq!(allocate(&mut device).0.unwrap(), id);
}

#[test]
fn what_the_session_refuses_to_map_is_dropped() {
    let mut device = open();
    device.link.to_map = Answer::Refusal;
    let (refused, weak) = allocate(&mut device);
    assert!(matches!(refused, Err(DeviceError::Fault { .. })), "{refused:?}");
    assert!(weak.upgrade().is_none());
}

#[test]
fn what_the_session_may_have_mapped_is_kept_until_it_ends() {
    let mut device = open();
    device.link.to_map = Answer::Silence;
    let (unanswered, weak) = allocate(&mut device);
    assert!(matches!(unanswered, Err(DeviceError::Timeout(_))), "{unanswered:?}");
    assert!(weak.upgrade().is_some());
    device.reset().unwrap();
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_shared_buffer_has_the_same_memory() {
    let [mut first, mut second] = [open(), open()];
    let (id, weak) = allocate(&mut first);
    second.share(&first, id.unwrap()).unwrap();
    drop(first);
    assert!(weak.upgrade().is_some());
    assert!(second.share(&open(), BufferId(5)).is_err());
    drop(second);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_silent_session_is_started_again_once() {
    let (link, info) = Null::open(&DeviceOptions::default(), 0).unwrap();
    let device = Client::greeted((Null { is_mute: true, ..link }, info)).unwrap();
    assert_eq!(device.link.restarts, 1);
}
