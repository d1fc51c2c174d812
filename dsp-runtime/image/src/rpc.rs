//! The FastRPC interface `hexflash`, as the bytes that reach the skel: which method, which buffers, and their
//! checks.
//!
//! The calling side is not trusted: counts and lengths are checked against the method before anything is
//! read. Input structs are read byte by byte, for nothing is promised about their alignment.
//!
//! | method | name | input | output |
//! |---|---|---|---|
//! | 0 | open | length of the URI, the URI with its NUL | a handle |
//! | 1 | close | the handle | |
//! | 2 | start | [`Start`] | |
//! | 3 | stop | | |
//! | 4 | info | | [`Info`] |
//! | 5 | run | a message | the response |
//! | 6 | form | [`Operands`](hexflash_abi::forms::Operands) | [`Given`](hexflash_abi::forms::Given) |

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An error code as a DSP gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AeeError(u32);

impl AeeError {
    /// DSP images add this to every code, so that they are told from the host's.
    const OFFSET: u32 = 0x8000_0400;

    /// Failed, and nothing more is known.
    pub const FAILED: Self = Self(Self::OFFSET + 0x1);
    /// No memory.
    pub const NO_MEMORY: Self = Self(Self::OFFSET + 0x2);
    /// Not in this state.
    pub const BAD_STATE: Self = Self(Self::OFFSET + 0xd);
    /// An argument is wrong.
    pub const BAD_PARAMETER: Self = Self(Self::OFFSET + 0xe);
    /// Somebody else has it.
    pub const ITEM_BUSY: Self = Self(Self::OFFSET + 0x20);
    /// No such memory or queue.
    pub const NO_SUCH_MAP: Self = Self(Self::OFFSET + 0x48);
    /// A thread could not be started.
    pub const THREAD_CREATE: Self = Self(Self::OFFSET + 0x14b);
    /// All are in use.
    pub const BUSY: Self = Self(Self::OFFSET + 0x183);
    /// No such method.
    pub const UNSUPPORTED: Self = Self(Self::OFFSET + 0x14);
    /// Already done.
    pub const ALREADY: Self = Self(Self::OFFSET + 0x1a);

    /// The code, as an invocation returns it.
    pub const fn code(self) -> i32 {
        self.0 as i32
    }
}

/// Arguments of `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Start {
    /// The exported `dspqueue`.
    pub queue: u64,
    /// Kernel threads.
    pub threads: u32,
    /// Bytes of VTCM.
    pub vtcm_bytes: u32,
    /// Power: 0 burst, 1 balanced, 2 efficient.
    pub power: u32,
    /// Who does DMA: 0 the DSP's engines, 1 the threads, 2 the engines, with a weight stream.
    pub dma: u32,
    /// Whether to ask for the matrix unit: 0 no, 1 yes. A session starts without it if it is not lent.
    pub matrix_unit: u32,
    /// How messages come: [`Self::QUEUE`] or [`Self::CALLS`].
    pub transport: u32,
}

impl Start {
    /// Messages are packets of the exported queue.
    pub const QUEUE: u32 = 0;
    /// Messages are calls of the method `run`; there is no queue.
    pub const CALLS: u32 = 1;
}

/// What `info` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Info {
    /// Version of the ABI.
    pub abi_version: u32,
    /// Architecture that the library was built for, 0x73 and up.
    pub arch: u32,
    /// Hash of the ABI's layout.
    pub layout_hash: u64,
    /// What the first vote for power that was refused gave; 0 if none was, or nothing runs.
    pub power: i32,
    /// What the request for the matrix unit gave: 0 if it was lent, or not asked for.
    pub matrix_unit: i32,
    /// Whether a session serves: 0 no, 1 yes. Some drivers lose what `start` gives.
    pub serving: u32,
    /// Code that the last `start` gave; 0 before the first.
    pub started: i32,
    /// The forms of float instructions that the library has and no library known to run on phones: a bit for
    /// each ([`Form::bit`](hexflash_abi::forms::Form::bit)).
    pub forms: u32,
    /// 0.
    pub reserved: u32,
}

/// What the methods do.
pub trait Interface {
    /// Opens a session for the URI; gives its handle.
    fn open(&mut self, uri: &[u8]) -> Result<u64, AeeError>;
    /// Closes it.
    fn close(&mut self, handle: u64) -> Result<(), AeeError>;
    /// Starts serving a queue.
    fn start(&mut self, handle: u64, start: &Start) -> Result<(), AeeError>;
    /// Stops serving.
    fn stop(&mut self, handle: u64) -> Result<(), AeeError>;
    /// Says what the library is.
    fn info(&mut self) -> Info;
    /// Answers a message; the response fills its memory.
    fn run(&mut self, handle: u64, request: &[u8], response: &mut [u8]) -> Result<(), AeeError>;
    /// Executes a form of float instruction on the bytes of
    /// [`Operands`](hexflash_abi::forms::Operands); gives those of
    /// [`Given`](hexflash_abi::forms::Given).
    fn form(&mut self, handle: u64, operands: &[u8], given: &mut [u8]) -> Result<(), AeeError>;
}

/// A buffer of an invocation.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RemoteBuffer {
    data: *mut u8,
    bytes: usize,
}

/// An argument of an invocation: 8 bytes on a DSP, 16 on a 64-bit host.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub union RemoteArg {
    buffer: RemoteBuffer,
    handle: u64,
}

const _: () = assert!(size_of::<RemoteArg>() == 2 * size_of::<usize>());

/// For who calls the skel: FastRPC's part in tests.
impl RemoteArg {
    /// A buffer to read or to write.
    pub fn buffer(data: &mut [u8]) -> Self {
        Self { buffer: RemoteBuffer { data: data.as_mut_ptr(), bytes: data.len() } }
    }

    /// A handle.
    pub const fn of_handle(handle: u64) -> Self {
        Self { handle }
    }

    /// The handle.
    ///
    /// # Safety
    /// It was made as a handle, or written as one.
    pub const unsafe fn as_handle(&self) -> u64 {
        // SAFETY: it was made as a handle, or written as one (the caller's contract).
        unsafe { self.handle }
    }
}

/// The word that says which method is called with how many arguments of each kind.
const fn scalars(method: u32, inputs: u32, outputs: u32, handles_in: u32, handles_out: u32) -> u32 {
    method << 24 | inputs << 16 | outputs << 8 | handles_in << 4 | handles_out
}

const OPEN: u32 = scalars(0, 2, 0, 0, 1);
const CLOSE: u32 = scalars(1, 0, 0, 1, 0);
const START: u32 = scalars(2, 1, 0, 0, 0);
const STOP: u32 = scalars(3, 0, 0, 0, 0);
const INFO: u32 = scalars(4, 0, 1, 0, 0);
const RUN: u32 = scalars(5, 1, 1, 0, 0);
const FORM: u32 = scalars(6, 1, 1, 0, 0);

/// Answers an invocation.
///
/// # Errors
/// [`AeeError::UNSUPPORTED`] for an unknown method, [`AeeError::BAD_PARAMETER`] for arguments that it does
/// not take, or what the method says.
///
/// # Safety
/// 1. `args` points to as many arguments as `sc` says, in the order input buffers, output buffers, input
///    handles, output handles, which nobody else touches.
/// 2. Each buffer is valid for its length, input for reading and output for writing.
pub unsafe fn invoke(
    interface: &mut impl Interface,
    handle: u64,
    sc: u32,
    args: *mut RemoteArg,
) -> Result<(), AeeError> {
    // SAFETY: `args` points to as many arguments as `sc` says (point 1). The arms below use only an `i` for
    // which their constant names an input buffer, and input buffers are valid for reading their length (point
    // 2).
    let input = |i: usize| unsafe { bytes((*args.add(i)).buffer) };
    match sc {
        OPEN => {
            let length = u32::read_from_prefix(input(0)).map_err(|_| AeeError::BAD_PARAMETER)?.0;
            match input(1) {
                [uri @ .., 0] if uri.len() + 1 == length as usize => {
                    // SAFETY: OPEN names two input buffers and an output handle (point 1), so that argument 2
                    // is there, and nobody else touches it.
                    unsafe { (*args.add(2)).handle = interface.open(uri)? };
                    Ok(())
                }
                _ => Err(AeeError::BAD_PARAMETER),
            }
        }
        // SAFETY: CLOSE names one argument, an input handle (point 1).
        CLOSE => interface.close(unsafe { (*args).handle }),
        START => match Start::read_from_prefix(input(0)) {
            Ok((start, _)) => interface.start(handle, &start),
            Err(_) => Err(AeeError::BAD_PARAMETER),
        },
        STOP => interface.stop(handle),
        INFO => {
            // SAFETY: INFO names one argument, an output buffer (point 1).
            let output = unsafe { (*args).buffer };
            if output.data.is_null() || output.bytes < size_of::<Info>() {
                return Err(AeeError::BAD_PARAMETER);
            }
            // SAFETY: the buffer is valid for writing its length (point 2), which is at least that of an
            // `Info`, by the check above; the write takes any address.
            unsafe { output.data.cast::<Info>().write_unaligned(interface.info()) };
            Ok(())
        }
        RUN => {
            // SAFETY: RUN names two arguments, the second an output buffer (point 1).
            let output = unsafe { (*args.add(1)).buffer };
            if output.data.is_null() {
                return Err(AeeError::BAD_PARAMETER);
            }
            // SAFETY: the buffer is not null, by the check above, and valid for writing its length, and
            // nobody else touches it (points 1 and 2); any bytes are bytes.
            let response = unsafe { core::slice::from_raw_parts_mut(output.data, output.bytes) };
            interface.run(handle, input(0), response)
        }
        FORM => {
            // SAFETY: FORM names two arguments, the second an output buffer (point 1).
            let output = unsafe { (*args.add(1)).buffer };
            if output.data.is_null() {
                return Err(AeeError::BAD_PARAMETER);
            }
            // SAFETY: the buffer is not null, by the check above, and valid for writing its length, and
            // nobody else touches it (points 1 and 2); any bytes are bytes.
            let given = unsafe { core::slice::from_raw_parts_mut(output.data, output.bytes) };
            interface.form(handle, input(0), given)
        }
        _ if sc >> 24 & 0x1f > 6 => Err(AeeError::UNSUPPORTED),
        _ => Err(AeeError::BAD_PARAMETER),
    }
}

/// # Safety
/// The buffer is valid for reading its length, while the result is used.
unsafe fn bytes<'a>(buffer: RemoteBuffer) -> &'a [u8] {
    if buffer.data.is_null() {
        return &[];
    }
    // SAFETY: `buffer.data` is not null, by the check above, and valid for reading `buffer.bytes` while the
    // result is used (the caller's contract).
    unsafe { core::slice::from_raw_parts(buffer.data, buffer.bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Fake {
        started: Option<Start>,
        closed: u64,
    }

    impl Interface for Fake {
        fn open(&mut self, uri: &[u8]) -> Result<u64, AeeError> {
            if uri == b"file:///x" { Ok(7) } else { Err(AeeError::FAILED) }
        }
        fn close(&mut self, handle: u64) -> Result<(), AeeError> {
            self.closed = handle;
            Ok(())
        }
        fn start(&mut self, _: u64, start: &Start) -> Result<(), AeeError> {
            self.started = Some(*start);
            Ok(())
        }
        fn stop(&mut self, _: u64) -> Result<(), AeeError> {
            Err(AeeError::BAD_STATE)
        }
        fn info(&mut self) -> Info {
            Info {
                abi_version: 1,
                arch: 0x73,
                layout_hash: 0x0102_0304_0506_0708,
                power: -1,
                matrix_unit: 9,
                serving: 1,
                started: 2,
                forms: 3,
                reserved: 0,
            }
        }
        fn run(&mut self, handle: u64, request: &[u8], response: &mut [u8]) -> Result<(), AeeError> {
            assert_eq!(handle, 7);
            let reversed = request.iter().rev();
            response.iter_mut().zip(reversed).for_each(|(to, from)| *to = *from);
            Ok(())
        }
        fn form(&mut self, _: u64, operands: &[u8], given: &mut [u8]) -> Result<(), AeeError> {
            given.copy_from_slice(operands.get(1..3).ok_or(AeeError::BAD_PARAMETER)?);
            Ok(())
        }
    }

    fn call(fake: &mut Fake, sc: u32, args: &mut [RemoteArg]) -> Result<(), AeeError> {
        // SAFETY: the tests give the arguments that `sc` names.
        unsafe { invoke(fake, 7, sc, args.as_mut_ptr()) }
    }

    #[test]
    fn scalars_are_those_of_the_interface() {
        assert_eq!(
            [OPEN, CLOSE, START, STOP, INFO, RUN, FORM],
            [0x2_0001, 0x100_0010, 0x201_0000, 0x300_0000, 0x400_0100, 0x501_0100, 0x601_0100]
        );
    }

    #[test]
    fn open_checks_the_uri() {
        let open = |length: u32, uri: &[u8]| {
            let (mut length, mut uri) = (length.to_le_bytes(), uri.to_vec());
            let mut args =
                [RemoteArg::buffer(&mut length), RemoteArg::buffer(&mut uri), RemoteArg { handle: 0 }];
            call(&mut Fake::default(), OPEN, &mut args)?;
            // SAFETY: `invoke` gave `Ok`, so OPEN has written the third argument as a handle, as which it was
            // made.
            Ok(unsafe { args[2].handle })
        };
        assert_eq!(open(10, b"file:///x\0"), Ok(7));
        assert_eq!(open(10, b"file:///xx"), Err(AeeError::BAD_PARAMETER));
        assert_eq!(open(11, b"file:///x\0"), Err(AeeError::BAD_PARAMETER));
        assert_eq!(open(0, b""), Err(AeeError::BAD_PARAMETER));
    }

    #[test]
    fn start_reads_its_struct_from_any_address() {
        let start = Start {
            queue: 0x1122_3344_5566_7788,
            threads: 4,
            vtcm_bytes: 8 << 20,
            power: 2,
            dma: 1,
            matrix_unit: 1,
            transport: Start::CALLS,
        };
        let mut data = [0; 33];
        data[1..].copy_from_slice(start.as_bytes());
        let mut fake = Fake::default();
        assert_eq!(call(&mut fake, START, &mut [RemoteArg::buffer(&mut data[1..])]), Ok(()));
        assert_eq!(fake.started, Some(start));
        assert_eq!(
            call(&mut fake, START, &mut [RemoteArg::buffer(&mut data[2..])]),
            Err(AeeError::BAD_PARAMETER)
        );
    }

    #[test]
    fn the_rest() {
        let mut fake = Fake::default();
        assert_eq!(call(&mut fake, CLOSE, &mut [RemoteArg { handle: 9 }]), Ok(()));
        assert_eq!(fake.closed, 9);
        assert_eq!(call(&mut fake, STOP, &mut []), Err(AeeError::BAD_STATE));
        let mut out = [0; 40];
        assert_eq!(call(&mut fake, INFO, &mut [RemoteArg::buffer(&mut out)]), Ok(()));
        let expected = [1, 0, 0, 0, 0x73, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 255, 255, 255, 255, 9, 0, 0, 0];
        assert_eq!(out[..24], expected);
        assert_eq!(out[24..], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let (mut request, mut response) = ([1, 2, 3], [0; 3]);
        let mut args = [RemoteArg::buffer(&mut request), RemoteArg::buffer(&mut response)];
        assert_eq!(call(&mut fake, RUN, &mut args), Ok(()));
        assert_eq!(response, [3, 2, 1]);
        assert_eq!(
            call(&mut fake, INFO, &mut [RemoteArg::buffer(&mut out[1..])]),
            Err(AeeError::BAD_PARAMETER)
        );
        let (mut operands, mut given) = ([1, 2, 3, 4], [0; 2]);
        let mut args = [RemoteArg::buffer(&mut operands), RemoteArg::buffer(&mut given)];
        assert_eq!(call(&mut fake, FORM, &mut args), Ok(()));
        assert_eq!(given, [2, 3]);
        assert_eq!(call(&mut fake, 0x1f00_0000, &mut []), Err(AeeError::UNSUPPORTED));
        assert_eq!(call(&mut fake, START & !0xff_0000, &mut []), Err(AeeError::BAD_PARAMETER));
    }
}
