//! The bytes of messages: one whole message of each kind, a response, and what is none.

use hexflash_abi::message::{
    Answer, BODY_BYTES, Exec, Load, Map, Message, Ping, PingInfo, Probe, Range, Request, Response, Run,
    Unload, Unmap,
};
use hexflash_abi::probe::Question;
use hexflash_abi::{BufferId, ErrorCode, Fault, Fd, LAYOUT_HASH, MAGIC, OpIndex, ProgramId, Seq, Status};
use zerocopy::{FromBytes, IntoBytes};

/// Pins the bytes of a message, and that they decode to it.
#[track_caller]
fn pin_message(message: Message, kind: u8, body: &[u8]) {
    let mut bytes = [0; 48];
    bytes[..8].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
    bytes[8] = kind;
    bytes[16..16 + body.len()].copy_from_slice(body);
    let request = message.encode(Seq(0x0102_0304_0506_0708));
    assert_eq!(request.as_bytes(), bytes);
    assert_eq!(Message::decode(&Request::read_from_bytes(&bytes).unwrap()), Ok(message));
    assert_eq!(u32::from(kind), message.kind().wire());
}

const RANGE: Range = Range { buffer: BufferId(3), len: 0x1234, offset: 0x0001_0000_0000 };

#[test]
fn ping() {
    let ping = Ping { magic: MAGIC, abi_version: 3, layout_hash: 0x1122_3344_5566_7788 };
    let body = [b'H', b'X', b'F', b'L', 3, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
    pin_message(Message::Ping(ping), 1, &body);
    assert_eq!(Ping::OURS, Ping { layout_hash: LAYOUT_HASH, ..ping });
}

#[test]
fn map() {
    let map = Map { buffer: BufferId(2), fd: Fd(-2), size: 0x1_0000_0080, flags: 1, reserved: 0 };
    let body = [2, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x80, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    pin_message(Message::Map(map), 2, &body);
}

#[test]
fn unmap() {
    pin_message(Message::Unmap(Unmap { buffer: BufferId(63) }), 3, &[63, 0, 0, 0]);
}

#[test]
fn load() {
    let load = Load { program: ProgramId(5), reserved: 0, block: RANGE };
    let body = [5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    pin_message(Message::Load(load), 4, &body);
}

#[test]
fn exec() {
    let exec = Exec { program: ProgramId(5), reserved: 0, registers: RANGE };
    let body = [5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    pin_message(Message::Exec(exec), 5, &body);
}

#[test]
fn run() {
    let registers = Range { buffer: BufferId(4), len: 64, offset: 128 };
    let body = [
        [3, 0, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        [4, 0, 0, 0, 64, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 0],
    ];
    pin_message(Message::Run(Run { block: RANGE, registers }), 6, body.as_flattened());
}

#[test]
fn unload() {
    pin_message(Message::Unload(Unload { program: ProgramId(31) }), 7, &[31, 0, 0, 0]);
}

#[test]
fn probe() {
    let probe = Probe { question: 2, number: 16, data: RANGE };
    let body = [2, 0, 0, 0, 16, 0, 0, 0, 3, 0, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    pin_message(Message::Probe(probe), 8, &body);
}

/// Each field of a question by itself, in the order in which they are checked.
#[test]
fn questions_that_are_none() {
    let data = Range { len: 4096, offset: 128, ..RANGE };
    let sound = Probe { question: 2, number: 16, data };
    assert_eq!(sound.question(), Ok(Question::OneQueue));
    let longer = Range { len: 4097, ..data };
    let askew = Range { offset: 64, ..data };
    for (probe, code, detail) in [
        (Probe { question: 0, ..sound }, ErrorCode::BadParam, 0),
        (Probe { question: 5, ..sound }, ErrorCode::BadParam, 0),
        (Probe { question: u32::MAX, number: 0, data: longer }, ErrorCode::BadParam, 0),
        (Probe { number: 0, data: longer, ..sound }, ErrorCode::BadParam, 1),
        (Probe { number: 65, ..sound }, ErrorCode::BadParam, 1),
        (Probe { data: longer, ..sound }, ErrorCode::BadParam, 2),
        (Probe { question: 1, number: 2, data }, ErrorCode::BadParam, 2),
        (Probe { question: 4, number: 1, data }, ErrorCode::BadParam, 2),
        (
            Probe { question: 4, number: 1, data: Range { offset: 128, ..Range::default() } },
            ErrorCode::BadParam,
            2,
        ),
        (Probe { data: askew, ..sound }, ErrorCode::Misaligned, 64),
        (Probe { data: Range { offset: u64::MAX, ..data }, ..sound }, ErrorCode::Misaligned, u32::MAX),
    ] {
        assert_eq!(probe.question(), Err(Fault::new(code, detail)), "{probe:?}");
    }
    let tiles = Range { len: 5 * 2048, ..data };
    assert_eq!(Probe { question: 1, number: 2, data: tiles }.question(), Ok(Question::MatrixUnit));
    assert_eq!(Probe { question: 4, number: 3, ..Probe::default() }.question(), Ok(Question::Packets));
}

/// One message of every kind.
fn messages() -> [Message; 8] {
    [
        Message::Ping(Ping::OURS),
        Message::Map(Map { buffer: BufferId(1), fd: Fd(7), size: 4096, flags: 1, reserved: 0 }),
        Message::Unmap(Unmap { buffer: BufferId(1) }),
        Message::Load(Load { program: ProgramId(1), reserved: 0, block: RANGE }),
        Message::Exec(Exec { program: ProgramId(1), reserved: 0, registers: RANGE }),
        Message::Run(Run { block: RANGE, registers: RANGE }),
        Message::Unload(Unload { program: ProgramId(1) }),
        Message::Probe(Probe { question: 1, number: 1, data: RANGE }),
    ]
}

fn refused(request: &Request, code: ErrorCode, detail: u32) {
    assert_eq!(Message::decode(request), Err(Fault::new(code, detail)));
}

#[test]
fn unknown_kind() {
    for kind in [0, 9, 0x100, u32::MAX] {
        let mut request = messages()[0].encode(Seq(1));
        request.kind = kind;
        refused(&request, ErrorCode::UnknownMessage, kind);
    }
}

#[test]
fn zeroed_request_is_no_message() {
    refused(&Request::read_from_bytes(&[0; 48]).unwrap(), ErrorCode::UnknownMessage, 0);
}

#[test]
fn non_zero_reserved_word() {
    for message in messages() {
        let mut request = message.encode(Seq(1));
        request.reserved = 9;
        refused(&request, ErrorCode::ReservedNotZero, 9);
    }
    // The reserved words inside bodies: Map's last, Load's and Exec's second.
    for (message, at) in [(messages()[1], 20), (messages()[3], 4), (messages()[4], 4)] {
        let mut request = message.encode(Seq(1));
        request.body[at] = 9;
        refused(&request, ErrorCode::ReservedNotZero, 9);
    }
}

#[test]
fn non_zero_tail_byte() {
    let lengths = [16, 24, 4, 24, 24, 32, 4, 24];
    for (message, len) in messages().into_iter().zip(lengths) {
        for at in len..BODY_BYTES {
            let mut request = message.encode(Seq(1));
            request.body[at] = 1;
            refused(&request, ErrorCode::ReservedNotZero, at as u32);
        }
    }
}

#[test]
fn responses() {
    let fault = Fault { op: OpIndex(0x1122), code: ErrorCode::OutOfBounds, detail: 0x3344 };
    let mut response = Response::fault(Seq(0x0102_0304_0506_0708), Status::Refused, fault);
    (response.elapsed_ns, response.dma_bytes, response.info) = (0x55, 0x66, [1, 2, 3, 4, 5, 6]);
    let bytes = [
        [8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0, 11, 0, 0, 0],
        [0x22, 0x11, 0, 0, 0x44, 0x33, 0, 0, 0x55, 0, 0, 0, 0, 0, 0, 0],
        [0x66, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0],
        [3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0],
    ];
    assert_eq!(response.as_bytes(), bytes.as_flattened());
    assert_eq!(response.outcome(), Err((Status::Refused, fault)));
    let info = PingInfo {
        abi_version: 1,
        layout_hash_low: 2,
        n_threads: 3,
        vtcm_bytes: 4,
        arch: 5,
        matrix_unit: 0,
        arena_bytes: 6,
    };
    assert_eq!(response.ping_info(), info);
    assert_eq!(response.answer(), Answer { outcome: 1, words: [2, 3, 4, 5, 6] });

    let ok = Response::ok(Seq(1));
    let bytes = [
        [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0; 16],
        [0; 16],
    ];
    assert_eq!(ok.as_bytes(), bytes.as_flattened());
    assert_eq!(ok.outcome(), Ok(()));
}

/// A response whose sender is not to be trusted, for the word that shows it.
fn untrusted(word: u32) -> Result<(), (Status, Fault)> {
    Err((Status::Fatal, Fault::new(ErrorCode::BadMessage, word)))
}

#[test]
fn zeroed_response_is_never_success() {
    assert_eq!(Response::read_from_bytes(&[0; 64]).unwrap().outcome(), untrusted(0));
}

#[test]
fn bad_status() {
    for status in [0, 5, 0x101, u32::MAX] {
        let response = Response { status, ..Response::ok(Seq(1)) };
        assert_eq!(response.outcome(), untrusted(status));
    }
}

#[test]
fn bad_code() {
    let fault = Response::fault(Seq(1), Status::Failed, Fault::new(ErrorCode::DmaError, 1));
    for code in [0, 37, u32::MAX] {
        assert_eq!(Response { code, ..fault }.outcome(), untrusted(code));
    }
}

#[test]
fn success_with_a_code_is_no_success() {
    for code in [1, 35, 36] {
        assert_eq!(Response { code, ..Response::ok(Seq(1)) }.outcome(), untrusted(code));
    }
}
