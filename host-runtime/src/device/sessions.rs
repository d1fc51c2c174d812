//! Several sessions of a device as one, for models that do not fit one: each holds some layers and their
//! states.
//!
//! Ids of buffers and programs are those of all sessions together, so a program's parts, one per session,
//! name the same buffers. What parts hand over lies in buffers that several sessions map. A step goes through
//! them in order, and the next one begins when it is through.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hexflash_abi::forms::{Given, Operands};
use hexflash_abi::message::{Load, MatrixUnit, Message, Response};
use hexflash_abi::{BufferId, ProgramId, Seq};

use super::{Buffer, Device, DeviceError, DeviceInfo, DeviceOptions, KeptAccess, SharedMemory, Source};
use crate::record::{MAX_SESSIONS, SessionSet, Site};
use crate::setting::Setting;

/// A device that can be one of several sessions.
pub trait DeviceSession: Device {
    /// Opens session `number`, counted from 0.
    ///
    /// # Errors
    /// As the `open` of the device.
    fn open_session(options: &DeviceOptions, number: usize) -> Result<Self, DeviceError>
    where
        Self: Sized;

    /// Maps a buffer of another session, under the id that it has there.
    ///
    /// # Errors
    /// As [`allocate`](Device::allocate).
    fn share(&mut self, of: &Self, id: BufferId) -> Result<(), DeviceError>;

    /// Leaves out the next id: another session uses it.
    ///
    /// # Errors
    /// [`DeviceError::TooManyBuffers`].
    fn reserve(&mut self) -> Result<(), DeviceError>;

    /// Makes an id that was left out available again.
    fn release(&mut self, id: BufferId);
}

/// The error of sharing a buffer of a session that has not mapped it.
pub(super) fn not_mapped(id: BufferId) -> DeviceError {
    DeviceError::Lost { reason: format!("buffer {id} is not mapped there") }
}

/// A request on its way.
struct Pending {
    seq: Seq,
    message: Message,
    /// Sessions that have not answered yet.
    left: SessionSet,
    /// Number of the request to the first of them, once it was sent.
    asked: Option<Seq>,
    /// Sum of the answers so far.
    sum: Option<Response>,
}

/// Several sessions of a device as one device.
pub struct SplitDevice<D> {
    all: Vec<D>,
    info: DeviceInfo,
    buffers: HashMap<BufferId, SessionSet>,
    programs: HashMap<ProgramId, SessionSet>,
    pending: VecDeque<Pending>,
    next_seq: u64,
    /// Number of the session that answered last.
    answered: usize,
}

impl<D: DeviceSession> SplitDevice<D> {
    /// Opens `number` sessions.
    ///
    /// # Errors
    /// [`DeviceError::Setting`], or a session cannot be opened.
    pub fn open(options: &DeviceOptions, number: usize) -> Result<Self, DeviceError> {
        if !(1..=MAX_SESSIONS).contains(&number) {
            let allowed = format!("1 to {MAX_SESSIONS}");
            return Err(DeviceError::Setting { setting: Setting::Sessions, allowed, found: number });
        }
        let all: Vec<D> =
            (0..number).map(|session| D::open_session(options, session)).collect::<Result<_, _>>()?;
        let first = all[0].info();
        // A program may run in any of them: the unit is as good as the worst.
        let units = || all.iter().map(|session| session.info().matrix_unit);
        let worst = [MatrixUnit::None, MatrixUnit::Failed].into_iter().find(|bad| units().any(|u| u == *bad));
        let matrix_unit = worst.unwrap_or(MatrixUnit::Works);
        let info = DeviceInfo { sessions: number as u32, matrix_unit, ..first.clone() };
        let (buffers, programs) = (HashMap::new(), HashMap::new());
        Ok(Self { all, info, buffers, programs, pending: VecDeque::new(), next_seq: 0, answered: 0 })
    }

    /// Maps a buffer in some sessions. `first` creates it in the first of them, the others of the set share
    /// it, and sessions outside the set skip its id.
    #[expect(
        clippy::panic,
        reason = "a split names sessions that the device has, and the engine split by its number"
    )]
    fn map(
        &mut self,
        sessions: SessionSet,
        first: impl FnOnce(&mut D) -> Result<Buffer, DeviceError>,
    ) -> Result<Buffer, DeviceError> {
        let owner = sessions.first().filter(|&owner| owner < self.all.len());
        let owner = owner.unwrap_or_else(|| panic!("{sessions:?} of {}", self.all.len()));
        let buffer = first(&mut self.all[owner])?;
        for session in (0..self.all.len()).filter(|&session| session != owner) {
            if let Err(error) = self.follow(session, owner, sessions, buffer.id) {
                // Undo this in the sessions before, so that the next free id stays the same in all sessions.
                for before in (0..session).filter(|&before| before != owner).chain([owner]) {
                    self.drop_from(before, sessions, &buffer)?;
                }
                return Err(error);
            }
        }
        self.buffers.insert(buffer.id, sessions);
        Ok(buffer)
    }

    /// Has a session share a buffer of `owner`, or leave its id out.
    #[expect(clippy::unreachable, reason = "the only caller names two different sessions of the device")]
    fn follow(
        &mut self,
        session: usize,
        owner: usize,
        sessions: SessionSet,
        id: BufferId,
    ) -> Result<(), DeviceError> {
        if !sessions.contains(session) {
            return self.all[session].reserve();
        }
        let [of, to] = self.all.get_disjoint_mut([owner, session]).unwrap_or_else(|_| unreachable!());
        to.share(of, id)
    }

    /// Has a session give up a buffer, or its id.
    fn drop_from(
        &mut self,
        session: usize,
        sessions: SessionSet,
        buffer: &Buffer,
    ) -> Result<(), DeviceError> {
        if sessions.contains(session) {
            return self.all[session].free(buffer.clone());
        }
        self.all[session].release(buffer.id);
        Ok(())
    }

    /// Sends the oldest request to the session that is next.
    fn ask(&mut self) -> Result<(), DeviceError> {
        if let Some(front) = self.pending.front_mut()
            && front.asked.is_none()
            && let Some(session) = front.left.first()
        {
            front.asked = Some(self.all[session].submit(&front.message)?);
        }
        Ok(())
    }

    fn send(&mut self, sessions: SessionSet, message: &Message) -> Result<Seq, DeviceError> {
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        self.pending.push_back(Pending { seq, message: *message, left: sessions, asked: None, sum: None });
        self.ask()?;
        Ok(seq)
    }
}

/// What two parts of a program cost together.
fn add(mut sum: Response, next: &Response) -> Response {
    sum.dma_bytes = sum.dma_bytes.saturating_add(next.dma_bytes);
    for (sum, next) in sum.info.iter_mut().zip(next.info) {
        *sum = sum.saturating_add(next);
    }
    sum
}

impl<D: DeviceSession> Device for SplitDevice<D> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate_filled(
        &mut self,
        bytes: u64,
        fill: &mut dyn FnMut(&SharedMemory),
    ) -> Result<Buffer, DeviceError> {
        self.map(SessionSet::all(self.all.len()), |session| session.allocate_filled(bytes, fill))
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        self.allocate_in(SessionSet::all(self.all.len()), bytes)
    }

    fn import(&mut self, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        self.import_in(SessionSet::all(self.all.len()), source)
    }

    fn copies_imports(&self) -> bool {
        self.all[0].copies_imports()
    }

    fn allocate_in(&mut self, sessions: SessionSet, bytes: u64) -> Result<Buffer, DeviceError> {
        self.map(sessions, |session| session.allocate(bytes))
    }

    fn import_in(&mut self, sessions: SessionSet, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        self.map(sessions, |session| session.import(source))
    }

    fn map_again(&mut self, memory: &SharedMemory) -> Result<Buffer, DeviceError> {
        self.map(SessionSet::all(self.all.len()), |session| session.map_again(memory))
    }

    fn load_in(&mut self, session: usize, load: &Load) -> Result<(), DeviceError> {
        self.all[session].load_in(0, load)?;
        let set = self.programs.entry(load.program).or_insert(SessionSet::NONE);
        *set = set.with(SessionSet::one(session));
        Ok(())
    }

    fn name_ops(&mut self, session: usize, program: ProgramId, sites: &[Site]) {
        self.all[session].name_ops(0, program, sites);
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        let sessions = self.buffers.remove(&buffer.id).unwrap_or(SessionSet::NONE);
        (0..self.all.len()).try_for_each(|session| self.drop_from(session, sessions, &buffer))
    }

    /// `Exec` goes to all that have a part of the program; everything else to the first session alone.
    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        let sessions = match message {
            Message::Exec(exec) => self.programs.get(&exec.program).copied(),
            _ => None,
        };
        self.send(sessions.unwrap_or(SessionSet::one(0)), message)
    }

    #[expect(clippy::unreachable, reason = "a request leaves the queue with the answer of its last session")]
    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.ask()?;
            let Some(front) = self.pending.front_mut() else { return Err(DeviceError::Timeout(timeout)) };
            let (Some(session), Some(asked)) = (front.left.first(), front.asked) else {
                unreachable!("a request is answered by its last session")
            };
            let response = self.all[session].wait(deadline.saturating_duration_since(Instant::now()))?;
            if response.seq != asked {
                return Err(DeviceError::OutOfOrder { expected: asked, found: response.seq });
            }
            self.answered = session;
            (front.left, front.asked) = (front.left.rest(), None);
            let sum = front.sum.map_or(response, |sum| add(sum, &response));
            front.sum = Some(sum);
            let (failed, seq) = (response.outcome().is_err(), front.seq);
            if failed || front.left == SessionSet::NONE {
                self.pending.pop_front();
                self.ask()?;
                return Ok(Response { seq, ..if failed { response } else { sum } });
            }
        }
    }

    fn answered(&self) -> usize {
        self.answered
    }

    fn kept_access(&self) -> KeptAccess {
        match (self.all[0].kept_access(), self.all.len()) {
            (access, 1) => access,
            (KeptAccess::Always, _) => KeptAccess::Always,
            // What one session writes back would drop lines of the others that have the same memory.
            (KeptAccess::AfterRun | KeptAccess::Never, _) => KeptAccess::Never,
        }
    }

    fn hexagon(&self) -> Option<u32> {
        self.all[0].hexagon()
    }

    fn form(&mut self, operands: &Operands) -> Result<Option<Given>, DeviceError> {
        self.all[0].form(operands)
    }

    fn patience(&self) -> Duration {
        self.all[0].patience()
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.pending.clear();
        self.buffers.clear();
        self.programs.clear();
        self.all.iter_mut().try_for_each(Device::reset)
    }
}
