//! What a model is said to need is what an engine maps, session by session and byte by byte.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hexflash::device::{self, Buffer, Device, DeviceError, DeviceInfo, DeviceOptions, SessionSet, Source};
use hexflash::engine::{Engine, EngineError, EngineOptions, ModelFiles, fit, open_device};
use hexflash::gguf::Gguf;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_abi::message::{Load, Message, Response};
use hexflash_abi::{BufferId, Seq};

/// Bytes of each buffer that is mapped, and the sessions that map it.
type Mapped = Arc<Mutex<HashMap<BufferId, (SessionSet, u64)>>>;

/// A device that counts what is mapped.
struct Counting {
    inner: Box<dyn Device>,
    mapped: Mapped,
}

impl Counting {
    fn count(&self, sessions: SessionSet, bytes: u64, buffer: Buffer) -> Buffer {
        self.mapped.lock().unwrap().insert(buffer.id, (sessions, bytes));
        buffer
    }

    fn all(&self) -> SessionSet {
        SessionSet::all(self.info().sessions as usize)
    }
}

impl Device for Counting {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        let buffer = self.inner.allocate(bytes)?;
        Ok(self.count(self.all(), bytes, buffer))
    }

    fn import(&mut self, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        let (bytes, buffer) = (source.bytes(), self.inner.import(source)?);
        Ok(self.count(self.all(), bytes, buffer))
    }

    fn allocate_in(&mut self, sessions: SessionSet, bytes: u64) -> Result<Buffer, DeviceError> {
        let buffer = self.inner.allocate_in(sessions, bytes)?;
        Ok(self.count(sessions, bytes, buffer))
    }

    fn import_in(&mut self, sessions: SessionSet, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        let (bytes, buffer) = (source.bytes(), self.inner.import_in(sessions, source)?);
        Ok(self.count(sessions, bytes, buffer))
    }

    fn load_in(&mut self, session: usize, load: &Load) -> Result<(), DeviceError> {
        self.inner.load_in(session, load)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        self.mapped.lock().unwrap().remove(&buffer.id);
        self.inner.free(buffer)
    }

    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        self.inner.submit(message)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        self.inner.wait(timeout)
    }

    fn answered(&self) -> usize {
        self.inner.answered()
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.inner.reset()
    }
}

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(name)
}

fn device_options(sessions: Option<usize>, session_bytes: Option<u64>) -> DeviceOptions {
    DeviceOptions { threads: Some(1), sessions, session_bytes, ..DeviceOptions::default() }
}

/// All bytes, and the largest mapping, of each session of a loaded model.
fn loaded(gguf: &Gguf, draft: Option<&Gguf>, options: &EngineOptions, sessions: usize) -> Vec<(u64, u64)> {
    let mapped = Mapped::default();
    let inner = device::open("inproc", &device_options(Some(sessions), None)).unwrap();
    let device = Counting { inner, mapped: Arc::clone(&mapped) };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let engine = Engine::load_with(gguf, draft, Box::new(device), options, &image).unwrap();
    let mapped = mapped.lock().unwrap();
    let of = |session| mapped.values().filter(move |(set, _)| set.contains(session)).map(|&(_, bytes)| bytes);
    let found = (0..sessions).map(|session| (of(session).sum(), of(session).max().unwrap())).collect();
    drop(engine);
    found
}

/// A limit of exactly what the fullest session needs is enough, and one byte less is not.
#[track_caller]
fn as_said(draft: Option<&str>, options: &EngineOptions) {
    let gguf = Gguf::open(&model("tiny-hybrid-q8_0.gguf")).unwrap();
    let draft = draft.map(|name| Gguf::open(&model(name)).unwrap());
    let draft = draft.as_ref();
    let files = ModelFiles::of(&gguf).with_draft(draft);
    let said = &fit(files, options).unwrap().chips[0].needs;
    let needs: Vec<_> = said.iter().map(|n| (n.total(), n.largest_weights.max(n.largest_other))).collect();
    assert_eq!(loaded(&gguf, draft, options, 1), needs);
    let open = |bytes| open_device("inproc", &device_options(None, Some(bytes)), files, options);
    let mut fewest = usize::MAX;
    for sessions in 1..=3 {
        let fullest = loaded(&gguf, draft, options, sessions).iter().map(|&(all, _)| all).max().unwrap();
        let chosen = open(fullest).unwrap().info().sessions as usize;
        assert!(chosen <= sessions, "{chosen} for {sessions}");
        assert_eq!(
            loaded(&gguf, draft, options, chosen).iter().filter(|&&(all, _)| all > fullest).count(),
            0
        );
        match open(fullest - 1) {
            Ok(device) => assert!(device.info().sessions as usize > chosen.min(fewest)),
            Err(error) => assert!(matches!(error, EngineError::DoesNotFit { .. }), "{error}"),
        }
        fewest = fewest.min(chosen);
    }
}

#[test]
fn plain_decoding() {
    as_said(None, &EngineOptions { n_ctx: Some(256), ..EngineOptions::default() });
    as_said(None, &EngineOptions { n_ctx: Some(512), batch: 16, ..EngineOptions::default() });
}

#[test]
fn speculation_and_several_sequences() {
    let options = EngineOptions { n_ctx: Some(256), speculate: true, ..EngineOptions::default() };
    as_said(None, &options);
    as_said(Some("tiny-hybrid-dflash-q8_0.gguf"), &options);
    let sequences = EngineOptions { sequences: 3, snapshot_bytes: 4 << 20, ..options };
    as_said(Some("tiny-hybrid-dflash-q8_0.gguf"), &sequences);
}
