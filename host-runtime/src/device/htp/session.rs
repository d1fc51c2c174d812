//! A session: a process on the DSP that has loaded our library and serves our queue.
//!
//! The order of calls is that of clients known to work: domain, unsigned libraries, URI, open, quality of
//! service, queue, start. Closing reverses it. If a call fails, the calls before it are undone.

use std::ffi::{CString, c_int};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use hexflash_abi::forms::{Form, Given, Operands, WORDS};
use hexflash_abi::{ABI_VERSION, LAYOUT_HASH};
use zerocopy::IntoBytes;

use super::super::limits::{CHIPS, Chip};
use super::super::options::TransportChoice;
use super::aee::AeeCode;
use super::calls::Calls;
use super::control::control;
use super::error::{Call, HtpError, check};
use super::ffi::{
    self, ARCH_VERSION, CDSP, CDSP_NAME, CONTROL_LATENCY, Capability, EffectiveDomain, GET_DSP_INFO, GetUri,
    Latency, ProcessKill, RemoteArg, ReserveSession, UnsignedModule, VTCM_COUNT, VTCM_PAGE, session,
};
use super::forms::{How, Refusal};
use super::library::Library;
use super::queue::Queue;
use super::transport::Transport;
use super::watch::Watch;
use crate::selftest::{Table, forms};

/// How long a call of the library on the DSP may take before its process is ended by force.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a session is asked for.
#[derive(Clone, Debug)]
pub(super) struct SessionRequest {
    /// Kernel threads.
    pub threads: u32,
    /// Bytes of VTCM.
    pub vtcm_bytes: u32,
    /// Number of the power profile.
    pub power: u32,
    /// Number of the DMA mode.
    pub dma: u32,
    /// Whether to ask for the matrix unit.
    pub matrix_unit: bool,
    /// Whether the domain's own session is taken, and another is to be reserved.
    pub reserve: bool,
    /// The way of messages.
    pub transport: TransportChoice,
    /// Time for which a wait looks at the queue before the thread sleeps.
    pub poll: Duration,
    /// What the DSP was found not to execute, so that it gets the plain library.
    pub refused: Option<Refusal>,
}

/// Asks what the DSP has; the library's code where it does not say.
fn capability(library: &Library, attribute: u32) -> Result<u32, c_int> {
    let mut query = Capability { domain: CDSP as u32, attribute, capability: 0 };
    let bytes = size_of_val(&query) as u32;
    // SAFETY: GET_DSP_INFO takes a `Capability`, of `bytes` bytes, which lives through the call and is
    // exclusive to it.
    let code =
        unsafe { (library.functions().remote_handle_control)(GET_DSP_INFO, (&raw mut query).cast(), bytes) };
    if code == 0 { Ok(query.capability) } else { Err(code) }
}

/// The version of the DSP, 0x68 and up.
pub(super) fn arch(library: &Library) -> Result<u32, HtpError> {
    let found = capability(library, ARCH_VERSION).map_err(|code| HtpError::call(Call::Arch, code))?;
    // Other bits lie above.
    let found = found & 0xff;
    if found < CHIPS[0].arch { Err(HtpError::TooOld { found }) } else { Ok(found) }
}

/// Bytes of the DSP's VTCM, where the library knows: v68 and v69 may have less than later versions.
pub(super) fn vtcm_bytes(library: &Library) -> Option<usize> {
    let [page, count] = [VTCM_PAGE, VTCM_COUNT].map(|attribute| capability(library, attribute).ok());
    (page? as usize).checked_mul(count? as usize).filter(|bytes| *bytes > 0)
}

/// A session of the DSP, as the library names it.
#[derive(Clone, Copy, Debug)]
struct SessionAddress {
    domain: c_int,
    session: u32,
}

impl SessionAddress {
    fn find(library: &Library, reserve: bool) -> Result<Self, HtpError> {
        let (domain_name, domain_name_length) = ffi::text(CDSP_NAME);
        if reserve {
            let (session_name, length) = ffi::text(c"hexflash");
            let mut request = ReserveSession {
                domain_name,
                domain_name_length,
                session_name,
                // The library copies one byte less than this: it counts the NUL.
                session_name_length: length + 1,
                effective_domain_id: 0,
                session_id: 0,
            };
            check(Call::ReserveSession, control(library, session::RESERVE_NEW_SESSION, &mut request))?;
            return Ok(Self { domain: request.effective_domain_id as c_int, session: request.session_id });
        }
        let mut request =
            EffectiveDomain { domain_name, domain_name_length, session_id: 0, effective_domain_id: 0 };
        // Older libraries do not know the request. Whatever they answer, the first session is the domain
        // itself: clients that are known to work never ask.
        let domain = match control(library, session::GET_EFFECTIVE_DOMAIN_ID, &mut request) {
            0 => request.effective_domain_id as c_int,
            code => {
                tracing::debug!("{}; domain {CDSP} is taken", HtpError::call(Call::EffectiveDomain, code));
                CDSP
            }
        };
        Ok(Self { domain, session: 0 })
    }

    /// The URI of our library in this session; of the one without IEEE arithmetic if that is asked for.
    fn uri(self, library: &Library, arch: u32, plain: bool) -> CString {
        let chip = Chip::for_arch(arch);
        let skel = if plain { chip.plain_skel() } else { chip.skel() };
        let module = format!("file:///{skel}?hexflash_skel_handle_invoke&_modver=1.0");
        let mut uri = vec![0u8; module.len() + 64];
        let module_text = c_text(&module);
        let (domain_name, domain_name_length) = ffi::text(CDSP_NAME);
        let (module_uri, module_uri_length) = ffi::text(&module_text);
        let mut request = GetUri {
            domain_name,
            domain_name_length,
            session_id: self.session,
            module_uri,
            module_uri_length,
            uri: uri.as_mut_ptr().cast(),
            uri_length: uri.len() as u32,
        };
        let code = control(library, session::GET_URI, &mut request);
        let given = (code == 0).then(|| std::ffi::CStr::from_bytes_until_nul(&uri).ok()).flatten();
        // Older libraries do not know the request; this is what newer ones say.
        let made = || match self.session {
            0 => format!("{module}&_dom=cdsp"),
            session => format!("{module}&_dom=cdsp&_session={session}"),
        };
        given.map(CString::from).unwrap_or_else(|| {
            let made = made();
            tracing::debug!("GET_URI gave {} and no URI; taken for one: {made}", AeeCode(code));
            c_text(&made)
        })
    }
}

/// A text of ours with its NUL. There is none within: it is made of constants and numbers.
fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// A running session.
pub(super) struct RpcSession {
    vendor: Arc<Library>,
    place: SessionAddress,
    handle: u64,
    /// `None` before it is made, and after it is closed.
    transport: Option<Transport>,
    started: bool,
    watch: Option<&'static Watch>,
    /// The process does not answer: it is not asked any more, but ended.
    stuck: bool,
}

/// Arguments of `start` and answer of `info`, as the library on the DSP has them.
#[derive(zerocopy::FromBytes, zerocopy::IntoBytes)]
#[repr(C)]
struct Start {
    queue: u64,
    threads: u32,
    vtcm_bytes: u32,
    power: u32,
    dma: u32,
    matrix_unit: u32,
    transport: u32,
}

#[derive(Default, zerocopy::FromBytes, zerocopy::IntoBytes)]
#[repr(C)]
struct Info {
    abi_version: u32,
    arch: u32,
    layout_hash: u64,
    power: i32,
    matrix_unit: i32,
    serving: u32,
    started: i32,
    forms: u32,
    reserved: u32,
}

const START: u32 = 2 << 24 | 1 << 16;
const STOP: u32 = 3 << 24;
const INFO: u32 = 4 << 24 | 1 << 8;
const FORM: u32 = 6 << 24 | 1 << 16 | 1 << 8;

impl RpcSession {
    /// Opens a session and starts serving. Where the DSP does not execute what the library consists of, it
    /// gets the one without, from then on.
    pub(super) fn open(
        library: &Arc<Library>,
        arch: u32,
        wanted: &mut SessionRequest,
    ) -> Result<Self, HtpError> {
        let refusal = match (Self::open_once(library, arch, wanted), &wanted.refused) {
            (Err(HtpError::Refused(refusal)), None) => refusal,
            (outcome, _) => return outcome,
        };
        tracing::warn!("{refusal}; the library without is loaded, which is slower");
        wanted.refused = Some(refusal.clone());
        Self::open_once(library, arch, wanted)
            .map_err(|error| HtpError::NoPlain { refusal, error: Box::new(error) })
    }

    fn open_once(library: &Arc<Library>, arch: u32, wanted: &SessionRequest) -> Result<Self, HtpError> {
        let place = SessionAddress::find(library, wanted.reserve)?;
        let mut unsigned = UnsignedModule { domain: place.domain, enable: 1 };
        check(Call::UnsignedModule, control(library, session::UNSIGNED_MODULE, &mut unsigned))?;
        // Without it, the end of the process shows when a call fails or times out.
        let watch = match Watch::register(library, place.domain) {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!("{error}");
                None
            }
        };
        let uri = place.uri(library, arch, wanted.refused.is_some());
        let handle = open_library(library, uri)?;
        let vendor = Arc::clone(library);
        // From here on, dropping it closes what is open.
        let mut session =
            Self { vendor, place, handle, transport: None, started: false, watch, stuck: false };
        session.set_latency();
        let forms = session.check_build(arch)?;
        session.check_forms(arch, forms)?;
        session.begin(wanted)?;
        Ok(session)
    }

    /// Starts serving messages that come the way that is wanted, or the other one.
    fn begin(&mut self, wanted: &SessionRequest) -> Result<(), HtpError> {
        if wanted.transport != TransportChoice::Calls {
            match self.begin_with_queue(wanted) {
                Err(error) if wanted.transport == TransportChoice::Auto && error.is_of_queue() => {
                    tracing::warn!("{error}; messages go to the DSP as calls, which take longer");
                }
                outcome => return outcome,
            }
        }
        // A queue that the DSP did not take must be closed before.
        self.transport = None;
        self.transport = Some(Transport::Calls(Calls::new(&self.vendor, self.handle)?));
        self.start(wanted)
    }

    fn begin_with_queue(&mut self, wanted: &SessionRequest) -> Result<(), HtpError> {
        self.transport = Some(Transport::Queue(Queue::create(&self.vendor, self.place.domain, wanted.poll)?));
        self.start(wanted)
    }

    /// The domain that stands for the session.
    pub(super) fn domain(&self) -> c_int {
        self.place.domain
    }

    /// The way to the DSP.
    ///
    /// # Panics
    /// If the session was stopped.
    #[expect(clippy::expect_used, reason = "the device drops a session right after it has stopped it")]
    pub(super) fn transport(&mut self) -> &mut Transport {
        self.transport.as_mut().expect("a session that was not stopped")
    }

    /// Whether messages go through a queue.
    pub(super) fn has_queue(&self) -> bool {
        matches!(self.transport, Some(Transport::Queue(_)))
    }

    /// What has become of the process, if it has ended.
    pub(super) fn end(&self) -> Option<&'static str> {
        self.watch?.end()
    }

    /// The process does not answer any more.
    pub(super) fn give_up(&mut self) {
        self.stuck = true;
    }

    /// Keeps the CPU from dozing while the DSP works; without it messages only take longer.
    fn set_latency(&self) {
        let Some(control) = self.vendor.functions().remote_handle64_control else { return };
        let mut latency = Latency { enable: 1, latency: 0 };
        let bytes = size_of_val(&latency) as u32;
        // SAFETY: `self.handle` is open until `self` is dropped. CONTROL_LATENCY takes a `Latency`, of
        // `bytes` bytes, which lives through the call.
        let code = unsafe { control(self.handle, CONTROL_LATENCY, (&raw mut latency).cast(), bytes) };
        if code != 0 {
            tracing::warn!(
                "remote_handle64_control(CONTROL_LATENCY) gave {}: messages may take longer",
                AeeCode(code)
            );
        }
    }

    /// Calls a method. A process that does not answer is ended, which ends the call.
    fn invoke(&self, scalars: u32, args: &mut [RemoteArg]) -> c_int {
        let (done, waiting) = channel::<()>();
        let (library, domain) = (&self.vendor, self.place.domain);
        std::thread::scope(|scope| {
            let watchdog = std::thread::Builder::new().name("hexflash-call".to_owned());
            let watchdog = watchdog.spawn_scoped(scope, move || {
                if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    kill(library, domain);
                }
            });
            if let Err(error) = watchdog {
                tracing::warn!("no thread to watch a call of the DSP: {error}");
            }
            // SAFETY: `args` has as many arguments as `scalars` says: each caller gives a constant with the
            // arguments that it names. Each is of its own length and lives through the call.
            let code = unsafe {
                (library.functions().remote_handle64_invoke)(self.handle, scalars, args.as_mut_ptr())
            };
            drop(done);
            code
        })
    }

    fn info(&self) -> Result<Info, HtpError> {
        let mut info = Info::default();
        check(Call::Info, self.invoke(INFO, &mut [RemoteArg::of(info.as_mut_bytes())]))?;
        Ok(info)
    }

    /// Executes a form of float instruction; `None` where the library does not have it.
    pub(super) fn form(&self, operands: &Operands) -> Result<Option<Given>, HtpError> {
        let mut operands = *operands;
        let mut given: Given = [[0; WORDS]; 2];
        let mut args = [RemoteArg::of(operands.as_mut_bytes()), RemoteArg::of(given.as_mut_bytes())];
        match AeeCode(self.invoke(FORM, &mut args)) {
            code if code.base() == AeeCode::UNSUPPORTED => Ok(None),
            code => check(Call::Form, code.0).map(|()| Some(given)),
        }
    }

    /// Asks for each form that the library has and no library known to run on phones.
    fn check_forms(&mut self, arch: u32, in_code: u32) -> Result<(), HtpError> {
        if in_code == 0 {
            return Ok(());
        }
        // A test sees that the table can be read.
        let table = Table::built_in().unwrap_or_default();
        let arch = Chip::for_arch(arch).arch;
        let asked = table.forms.iter().filter(|vectors| {
            vectors.form.bit() & in_code != 0 && vectors.archs.contains(&arch) && vectors.question.is_none()
        });
        for vectors in asked {
            let form: Form = vectors.form;
            let how = match self.form(&vectors.operands()) {
                Ok(Some(given)) => match forms::others(vectors, &given).into_iter().next() {
                    None => continue,
                    Some(other) => How::Gives(Box::new(other)),
                },
                Ok(None) => How::Fails(AeeCode(AeeCode::UNSUPPORTED as i32)),
                // The library has answered.
                Err(busy @ HtpError::Call { code, .. }) if code.base() == AeeCode::BUSY => return Err(busy),
                Err(HtpError::Call { code, .. }) => {
                    self.give_up();
                    How::Fails(code)
                }
                Err(other) => return Err(other),
            };
            return Err(HtpError::Refused(Refusal { form, how }));
        }
        Ok(())
    }

    /// Refuses a library of another build or for a newer DSP. Gives the forms that it has and no library
    /// known to run on phones.
    fn check_build(&self, arch: u32) -> Result<u32, HtpError> {
        let info = self.info()?;
        if (info.abi_version, info.layout_hash) != (ABI_VERSION, LAYOUT_HASH) {
            return Err(HtpError::OtherBuild { version: info.abi_version, layout: info.layout_hash as u32 });
        }
        if info.arch > arch {
            return Err(HtpError::OtherArch { library: info.arch, found: arch });
        }
        Ok(info.forms)
    }

    fn start(&mut self, wanted: &SessionRequest) -> Result<(), HtpError> {
        let &SessionRequest { threads, vtcm_bytes, power, dma, matrix_unit, .. } = wanted;
        let (transport, queue) = self.transport().on_dsp()?;
        let matrix_unit = matrix_unit.into();
        let mut start = Start { queue, threads, vtcm_bytes, power, dma, matrix_unit, transport };
        check(Call::Start, self.invoke(START, &mut [RemoteArg::of(start.as_mut_bytes())]))?;
        self.started = true;
        let Info { power, matrix_unit, serving, started, .. } = self.info()?;
        if serving == 0 {
            // Some drivers lose what a method gives (Windows' MCDM driver is reported to).
            self.started = false;
            let code = if started == 0 { AeeCode::FAILED as i32 } else { started };
            return Err(HtpError::call(Call::Start, code));
        }
        if power != 0 {
            tracing::warn!("the DSP refused a vote for power with {}: it may run slower", AeeCode(power));
        }
        if matrix_unit != 0 {
            tracing::warn!("the DSP does not lend its matrix unit: {}", AeeCode(matrix_unit));
        }
        Ok(())
    }

    /// Ends serving; the process has nothing mapped afterwards. Does nothing the second time.
    pub(super) fn stop(&mut self) {
        if std::mem::take(&mut self.started) {
            if self.stuck || self.end().is_some() {
                kill(&self.vendor, self.place.domain);
            } else {
                let code = self.invoke(STOP, &mut []);
                if code != 0 {
                    tracing::debug!("stop gave {}", AeeCode(code));
                    kill(&self.vendor, self.place.domain);
                }
            }
        }
        self.transport = None;
    }
}

/// Opens our library on the DSP, which starts the process there. Where shell and firmware do not match, the
/// call does not come back, and nothing ends it: it is left to itself then, and what it opens is closed.
fn open_library(library: &Arc<Library>, uri: CString) -> Result<u64, HtpError> {
    let (give, opened) = channel();
    let vendor = Arc::clone(library);
    let open = move || {
        let mut handle = 0;
        // SAFETY: `uri` is a text that ends with 0, and the handle is written to `handle`; both live through
        // the call.
        let code = unsafe { (vendor.functions().remote_handle64_open)(uri.as_ptr(), &raw mut handle) };
        if give.send(check(Call::Open, code).map(|()| handle)).is_err() && code == 0 {
            // SAFETY: the call above has opened the handle, and nobody else has it.
            unsafe { (vendor.functions().remote_handle64_close)(handle) };
        }
    };
    let thread = std::thread::Builder::new().name("hexflash-open".to_owned()).spawn(open);
    thread.map_err(|error| HtpError::no_thread(&error))?;
    let hangs = |_| HtpError::OpenHangs { seconds: PATIENCE.as_secs() };
    opened.recv_timeout(PATIENCE).map_err(hangs)?
}

/// Ends the process by force.
fn kill(library: &Library, domain: c_int) {
    let mut request = ProcessKill { domain };
    let code = control(library, session::PROCESS_KILL, &mut request);
    if code != 0 {
        tracing::debug!("REMOTE_PROCESS_KILL gave {}", AeeCode(code));
    }
}

impl Drop for RpcSession {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: `open` has opened the handle, and this is the last use of it, for `self` is being dropped.
        let code = unsafe { (self.vendor.functions().remote_handle64_close)(self.handle) };
        // A process that ended by itself is as gone as one that was told to: reported after clean runs, too.
        if ![0, AeeCode::CONNECTION_RESET].contains(&(AeeCode(code).base())) {
            tracing::debug!("remote_handle64_close gave {}", AeeCode(code));
        }
    }
}
