//! The weight cache: when it is reused, when it is rebuilt, what it never touches, and whom it trusts.

mod common;

use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use common::{Random, random_rows};
use hexflash::cancel::Cancel;
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::weights::{CachePolicy, Form, ImageOptions, WeightError, WeightImage, WeightSpec};
use tempfile::TempDir;

/// Where the image starts in a cache.
const IMAGE: u64 = 64 * 1024;

struct Fixture {
    dir: TempDir,
    specs: Vec<WeightSpec>,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self {
            dir: TempDir::new().unwrap(),
            specs: vec![
                WeightSpec::new("w", Form::Tiled),
                WeightSpec::new("norm", Form::Plain),
                WeightSpec { name: "one".into(), sources: vec![], form: Form::Values(vec![1.0]) },
            ],
        };
        fixture.write_model(1);
        fixture
    }

    fn model(&self) -> PathBuf {
        self.dir.path().join("model.gguf")
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("model.gguf.hfcache")
    }

    /// Writes the model in place; every seed gives the same header and length, and other data.
    fn write_model(&self, seed: u64) {
        let mut writer = GgufWriter::new();
        writer.kv("general.architecture", "test");
        writer.tensor("w", GgmlType::Q8_0, &[256, 500], random_rows(GgmlType::Q8_0, 256, 500, seed)).unwrap();
        writer.tensor("norm", GgmlType::F32, &[256], random_rows(GgmlType::F32, 256, 1, seed)).unwrap();
        let mut bytes = Vec::new();
        writer.write_to(&mut bytes).unwrap();
        fs::write(self.model(), bytes).unwrap();
        // File times tick in milliseconds: what a test does next is to get another one.
        std::thread::sleep(Duration::from_millis(20));
    }

    fn load_with(&self, cache: CachePolicy) -> WeightImage {
        let gguf = Gguf::open(&self.model()).unwrap();
        WeightImage::load(&gguf, &self.specs, &ImageOptions { cache, ..Default::default() }).unwrap()
    }

    /// Loads with the cache beside the model, and compares with an image packed in memory.
    fn load(&self) -> WeightImage {
        let image = self.load_with(CachePolicy::Beside);
        assert!(image.memory() == self.load_with(CachePolicy::Off).memory(), "{:?}", image.notes());
        assert_eq!(image.memory().unwrap().as_ptr() as usize % 4096, 0);
        image
    }

    /// Loads for a device that copies, with the cache beside the model.
    fn load_to_copy(&self) -> WeightImage {
        let gguf = Gguf::open(&self.model()).unwrap();
        WeightImage::load_to_copy(&gguf, &self.specs, &ImageOptions::default()).unwrap()
    }

    /// Loads, which must leave what is at the cache's place as it is, with a note that says `why`.
    #[track_caller]
    fn left_alone(&self, why: &str) {
        let image = self.load();
        assert!(image.repacked_bytes() > 0 && image.warnings().len() == 1);
        assert!(
            note(&image).contains("left alone because") && note(&image).contains(why),
            "{}",
            note(&image)
        );
        self.no_drafts();
    }

    #[track_caller]
    fn reused(&self) -> WeightImage {
        let image = self.load();
        assert_eq!(image.repacked_bytes(), 0, "{:?}", image.notes());
        image
    }

    /// Loads, which must rebuild the cache with a note that says `why`; then it is reused.
    #[track_caller]
    fn rebuilt(&self, why: &str) {
        let image = self.load();
        assert!(image.repacked_bytes() > 0 && image.warnings().len() == 1);
        assert!(note(&image).contains("rebuilt because") && note(&image).contains(why), "{}", note(&image));
        self.reused();
        self.no_drafts();
    }

    #[track_caller]
    fn no_drafts(&self) {
        let drafts = fs::read_dir(self.dir.path()).unwrap().filter(|e| {
            let name = e.as_ref().unwrap().file_name();
            name.to_str().unwrap().ends_with(".tmp")
        });
        assert_eq!(drafts.count(), 0);
    }
}

#[track_caller]
fn note(image: &WeightImage) -> &str {
    assert_eq!(image.notes().len(), 1, "{:?}", image.notes());
    assert!(!image.notes()[0].contains('\n'));
    &image.notes()[0]
}

/// Changes one byte of a file in place.
fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn set_modified(path: &Path, time: SystemTime) {
    File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[test]
fn built_once_then_read() {
    let f = Fixture::new();
    let first = f.load();
    assert!(first.repacked_bytes() > 0 && note(&first).contains("written"), "{:?}", first.notes());
    assert_eq!(fs::metadata(f.cache()).unwrap().len(), IMAGE + first.bytes());
    let second = f.reused();
    assert!(note(&second).contains("reused"));
    // Memory outlives the model, other clones and the cache file's name.
    fs::remove_file(f.cache()).unwrap();
    let clone = second.clone();
    drop(second);
    assert!(clone.memory() == first.memory());
    f.no_drafts();
}

#[test]
fn off_leaves_no_file() {
    let f = Fixture::new();
    let image = f.load_with(CachePolicy::Off);
    assert!(image.notes().is_empty() && !f.cache().exists());
}

#[test]
fn a_directory_of_its_own_is_made_and_keeps_models_apart() {
    let (f, g) = (Fixture::new(), Fixture::new());
    g.write_model(2);
    let dir = f.dir.path().join("a/b");
    for round in 0..2 {
        for f in [&f, &g] {
            let image = f.load_with(CachePolicy::Dir(dir.clone()));
            assert_eq!(image.repacked_bytes() == 0, round == 1, "{:?}", image.notes());
        }
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 2);
    assert!(!f.cache().exists());
}

#[test]
fn a_touched_model_is_compared_by_content_once() {
    let f = Fixture::new();
    f.load();
    set_modified(&f.model(), SystemTime::now() + Duration::from_secs(5));
    assert!(note(&f.reused()).contains("content is the same"));
    assert!(!note(&f.reused()).contains("content"), "the time stamp was renewed");
}

#[cfg(target_os = "linux")]
#[test]
fn the_time_stamp_of_a_cache_in_use_is_renewed_by_a_later_start() {
    let f = Fixture::new();
    f.load();
    let in_use = f.reused();
    set_modified(&f.model(), SystemTime::now() + Duration::from_secs(5));
    assert!(note(&f.reused()).contains("content is the same"));
    drop(in_use);
    f.reused();
    assert!(!note(&f.reused()).contains("content"), "the time stamp was renewed");
}

#[test]
fn changed_content_is_found() {
    let f = Fixture::new();
    f.load();
    f.write_model(2);
    f.rebuilt("the model has changed");
}

/// Same header, same length, modification time set back. On Unix the inode's change time, which nobody can
/// set, gives it away; elsewhere it would not be noticed.
#[cfg(unix)]
#[test]
fn changed_content_with_its_time_set_back_is_found() {
    let f = Fixture::new();
    f.load();
    let about = fs::metadata(f.model()).unwrap();
    f.write_model(2);
    set_modified(&f.model(), about.modified().unwrap());
    assert_eq!(fs::metadata(f.model()).unwrap().len(), about.len());
    f.rebuilt("the model has changed");
}

#[test]
fn other_specs_make_another_image() {
    let mut f = Fixture::new();
    f.load();
    f.specs[2].form = Form::Values(vec![2.0]);
    f.rebuilt("another model");
    f.specs.remove(1);
    f.rebuilt("another model");
    f.specs[0].name = "label".into();
    f.rebuilt("another model");
}

#[test]
fn other_metadata_makes_another_image() {
    let f = Fixture::new();
    f.load();
    let mut bytes = fs::read(f.model()).unwrap();
    let at = bytes.windows(4).position(|w| w == b"test").unwrap();
    bytes[at..at + 4].copy_from_slice(b"tess");
    fs::write(f.model(), bytes).unwrap();
    f.rebuilt("another model");
}

#[test]
fn truncated_anywhere() {
    let f = Fixture::new();
    let len = IMAGE + f.load().bytes();
    for keep in [0, 1, 7, 8, 12, 87, 88, 4096, IMAGE, len - 1] {
        File::options().write(true).open(f.cache()).unwrap().set_len(keep).unwrap();
        f.rebuilt("truncated");
    }
    File::options().write(true).open(f.cache()).unwrap().set_len(len + 1).unwrap();
    f.rebuilt("truncated");
}

#[test]
fn a_flipped_bit_anywhere_in_the_header() {
    let f = Fixture::new();
    f.load();
    for at in 8..88 {
        flip(&f.cache(), at);
        f.rebuilt(if at < 12 { "another version" } else { "damaged" });
    }
}

/// The header is right in itself, but for another version of the tiles or of the ABI.
#[test]
fn other_versions() {
    let f = Fixture::new();
    f.load();
    for at in [12, 16] {
        let mut bytes = fs::read(f.cache()).unwrap();
        bytes[at] += 1;
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..80]);
        bytes[80..88].copy_from_slice(&sum.to_le_bytes());
        fs::write(f.cache(), bytes).unwrap();
        f.rebuilt("another version");
    }
}

/// Whatever bit it is: of the header, the zeros behind it, a weight, or what pads weights.
#[test]
fn a_flipped_bit_anywhere_in_the_file_is_found() {
    let f = Fixture::new();
    let len = IMAGE + f.load().bytes();
    let whole = fs::read(f.cache()).unwrap();
    let mut random = Random::new(5);
    // The last byte pads a weight of 4 bytes.
    let ends = [88, IMAGE - 1, IMAGE, len - 1].map(|at| (at, 7));
    let anywhere = (0..20).map(|_| (u64::from(random.bits()) % len, random.bits() % 8)).collect::<Vec<_>>();
    let in_image = (0..100).map(|_| (IMAGE + u64::from(random.bits()) % (len - IMAGE), random.bits() % 8));
    for (at, bit) in ends.into_iter().chain(anywhere).chain(in_image.collect::<Vec<_>>()) {
        let mut damaged = whole.clone();
        damaged[at as usize] ^= 1 << bit;
        fs::write(f.cache(), damaged).unwrap();
        let image = f.load();
        // The first bytes say whether it is a cache at all.
        let expected = if at < 8 { "left alone because" } else { "rebuilt because" };
        assert!(image.warnings().len() == 1 && note(&image).contains(expected), "{at}: {:?}", image.notes());
        if at >= IMAGE {
            assert!(note(&image).contains("its data is damaged"), "{at}: {}", note(&image));
        }
    }
}

#[test]
fn damage_is_found_before_a_device_copies_the_weights_and_while_it_does() {
    let f = Fixture::new();
    let expected = f.load();
    let same = |image: &WeightImage| {
        assert!(image.memory().is_none(), "left in the file");
        for (label, entry) in image.entries() {
            assert!(image.data(entry).unwrap() == expected.data(entry).unwrap(), "{label}");
        }
    };
    let image = f.load_to_copy();
    assert_eq!(image.repacked_bytes(), 0);
    same(&image);
    flip(&f.cache(), IMAGE + 1000);
    let w = image.entry("w").unwrap();
    let error = image.data(w).unwrap_err();
    assert!(matches!(&error, WeightError::Changed { path, .. } if *path == f.cache()), "{error}");
    assert!(error.to_string().contains("start again"));

    let rebuilt = f.load_to_copy();
    assert!(note(&rebuilt).contains("rebuilt because its data is damaged"), "{}", note(&rebuilt));
    same(&rebuilt);
    // An open file outlives its name.
    fs::remove_file(f.cache()).unwrap();
    same(&rebuilt);
    let written = f.load_to_copy();
    assert!(note(&written).contains("written"));
    same(&written);
    File::options().write(true).open(f.cache()).unwrap().set_len(IMAGE + 100).unwrap();
    assert!(matches!(written.data(w), Err(WeightError::Changed { .. })));
}

/// Whether this process has the cache mapped: on Linux it is used where it lies, as long as nobody wants to
/// change it.
#[cfg(target_os = "linux")]
fn is_mapped(cache: &Path) -> bool {
    fs::read_to_string("/proc/self/maps").unwrap().contains(cache.to_str().unwrap())
}

#[test]
fn a_cache_that_is_cut_or_overwritten_later_changes_no_weights() {
    let f = Fixture::new();
    let cut = |file: &File| {
        let len = file.metadata().unwrap().len();
        file.set_len(IMAGE).unwrap();
        file.set_len(len).unwrap();
    };
    let open = || File::options().write(true).open(f.cache()).unwrap();

    let built = f.load();
    let before = built.memory().unwrap().to_vec();
    cut(&open());
    assert!(built.memory().unwrap() == before, "built");
    fs::remove_file(f.cache()).unwrap();
    f.load();

    // Two loads, as of two processes.
    let mapped = [f.reused(), f.reused()];
    #[cfg(target_os = "linux")]
    assert!(is_mapped(&f.cache()));
    // Waits until both have a copy.
    cut(&open());
    #[cfg(target_os = "linux")]
    assert!(!is_mapped(&f.cache()));
    assert!(mapped.iter().all(|image| image.memory().unwrap() == before), "mapped");
    fs::remove_file(f.cache()).unwrap();
    f.load();

    // Somebody could write to it at any moment.
    let writer = open();
    let copied = f.reused();
    #[cfg(target_os = "linux")]
    assert!(!is_mapped(&f.cache()));
    cut(&writer);
    assert!(copied.memory().unwrap() == before, "copied");
}

/// Each way to load reads the model at another place.
#[test]
fn a_model_that_is_cut_while_it_is_loaded_is_one_line() {
    let f = Fixture::new();
    let whole = fs::read(f.model()).unwrap();
    let ways: [(&str, bool); 3] = [("packed", false), ("packed into a cache", true), ("compared", true)];
    for (way, cached) in ways {
        if way == "compared" {
            f.load();
            set_modified(&f.model(), SystemTime::now() + Duration::from_secs(5));
        }
        for load in [WeightImage::load, WeightImage::load_to_copy] {
            let gguf = Gguf::open(&f.model()).unwrap();
            let file = File::options().write(true).open(f.model()).unwrap();
            file.set_len(whole.len() as u64 / 2).unwrap();
            let cache = if cached { CachePolicy::Beside } else { CachePolicy::Off };
            let options = ImageOptions { cache, ..Default::default() };
            let error = load(&gguf, &f.specs, &options).unwrap_err().to_string();
            assert!(error.contains("model.gguf: tensor ") && error.contains("shorter"), "{way}: {error}");
            assert!(!error.contains('\n'));
            f.no_drafts();
            assert_eq!(f.cache().exists(), way == "compared", "{way}");
            fs::write(f.model(), &whole).unwrap();
        }
    }
}

#[test]
fn foreign_files_are_left_alone() {
    let f = Fixture::new();
    for content in ["a letter to my mother", "HXFCACH!"] {
        fs::write(f.cache(), content).unwrap();
        let image = f.load();
        assert!(note(&image).contains("left alone because it is not a weight cache"), "{}", note(&image));
        assert_eq!(fs::read_to_string(f.cache()).unwrap(), content);
    }
    fs::remove_file(f.cache()).unwrap();
    fs::create_dir(f.cache()).unwrap();
    assert!(note(&f.load()).contains("left alone because it is not a file"));
    assert!(f.cache().is_dir());
    f.no_drafts();
}

#[test]
fn without_a_writable_place_weights_stay_in_memory() {
    let f = Fixture::new();
    // Root may write anywhere, but not below a file.
    let image = f.load_with(CachePolicy::Dir(f.model().join("cache")));
    assert!(note(&image).contains("stay in memory"), "{}", note(&image));
    assert!(image.repacked_bytes() > 0);
}

#[cfg(unix)]
#[test]
fn a_read_only_directory_is_no_error() {
    use std::os::unix::fs::PermissionsExt;
    let f = Fixture::new();
    let mode = |mode| fs::set_permissions(f.dir.path(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    let moot = File::create(f.dir.path().join("probe")).is_ok();
    let image = f.load_with(CachePolicy::Beside);
    mode(0o755);
    // Root writes all the same.
    assert!(moot || note(&image).contains("cannot be written"), "{}", note(&image));
    assert!(image.repacked_bytes() > 0);
}

#[test]
fn builders_at_once_do_not_disturb_each_other() {
    let f = Fixture::new();
    let expected = f.load_with(CachePolicy::Off);
    for _ in 0..10 {
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let image = f.load_with(CachePolicy::Beside);
                    assert!(image.memory() == expected.memory());
                });
            }
        });
        f.reused();
        f.no_drafts();
        fs::remove_file(f.cache()).unwrap();
    }
}

#[test]
fn drafts_of_dead_processes_are_removed() {
    let f = Fixture::new();
    let draft = |name: &str, age: u64| {
        let path = f.dir.path().join(format!("model.gguf.hfcache.{name}"));
        fs::write(&path, "x").unwrap();
        set_modified(&path, SystemTime::now() - Duration::from_secs(age));
        path
    };
    let dead = draft("123-0.tmp", 100);
    let young = draft("124-0.tmp", 0);
    let users = draft("notes.tmp", 100);
    let alive = draft("125-0.tmp", 100);
    let lock = File::open(&alive).unwrap();
    lock.lock().unwrap();
    // A process of this number left one behind that cannot be told from this process's own.
    let own = draft(&format!("{}-0.tmp", std::process::id()), 0);
    f.load();
    assert!(!dead.exists());
    assert!(young.exists() && users.exists() && alive.exists() && own.exists());
}

#[cfg(unix)]
#[test]
fn a_link_is_neither_followed_nor_replaced() {
    let f = Fixture::new();
    f.load();
    let target = f.dir.path().join("elsewhere");
    let valid = fs::read(f.cache()).unwrap();
    for content in [b"".as_slice(), b"HXF", b"a letter to my mother", &valid] {
        fs::write(&target, content).unwrap();
        fs::remove_file(f.cache()).unwrap();
        std::os::unix::fs::symlink(&target, f.cache()).unwrap();
        f.left_alone("it is a link");
        assert!(f.cache().is_symlink() && fs::read(&target).unwrap() == content);
    }
    fs::remove_file(&target).unwrap();
    f.left_alone("it is a link");
    assert!(f.cache().is_symlink() && !target.exists(), "nothing was made where it points to");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_waited_for() {
    let f = Fixture::new();
    let made = std::process::Command::new("mkfifo").arg(f.cache()).status().unwrap();
    assert!(made.success());
    f.left_alone("it is not a file");
}

/// Only root can give files away; what decides is tested with numbers, too, beside it.
#[cfg(unix)]
#[test]
fn another_users_cache_is_not_used() {
    const STRANGER: u32 = 54_321;
    let f = Fixture::new();
    f.load();
    let cache = fs::read(f.cache()).unwrap();
    match std::os::unix::fs::chown(f.cache(), Some(STRANGER), None) {
        Ok(()) => {
            f.left_alone("it belongs to another user");
            assert!(fs::read(f.cache()).unwrap() == cache);
        }
        Err(refused) => {
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
            f.reused();
        }
    }
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(unix)]
#[test]
fn a_cache_that_others_may_write_to_is_built_again() {
    let f = Fixture::new();
    f.load();
    for shared in [0o666, 0o620, 0o602] {
        set_mode(&f.cache(), shared);
        f.rebuilt("other users may write to it");
        assert_eq!(mode(&f.cache()) & 0o022, 0);
    }
    // But nothing else is replaced for that.
    fs::write(f.cache(), "notes of all of us").unwrap();
    set_mode(&f.cache(), 0o666);
    f.left_alone("it is not a weight cache");
    assert_eq!(fs::read_to_string(f.cache()).unwrap(), "notes of all of us");
}

#[cfg(unix)]
#[test]
fn a_cache_is_read_by_those_who_may_read_the_model() {
    let f = Fixture::new();
    let built = |model| {
        set_mode(&f.model(), model);
        let _ = fs::remove_file(f.cache());
        f.load();
        mode(&f.cache())
    };
    for (model, cache) in
        [(0o600, 0o600), (0o640, 0o640), (0o644, 0o644), (0o664, 0o644), (0o777, 0o644), (0o604, 0o604)]
    {
        assert_eq!(built(model), cache, "{model:o}");
    }
    // The group of the cache is not that of the model: its members count as others there.
    if std::os::unix::fs::chown(f.model(), None, Some(54_321)).is_ok() {
        for (model, cache) in [(0o640, 0o600), (0o644, 0o644), (0o604, 0o600)] {
            assert_eq!(built(model), cache, "{model:o} of another group");
        }
    }
    // A folder that is made for caches is private.
    let dir = f.dir.path().join("caches");
    f.load_with(CachePolicy::Dir(dir.clone()));
    assert_eq!(mode(&dir), 0o700);
}

/// Where files need no name, a process that is killed while it builds a cache leaves nothing behind.
#[cfg(target_os = "linux")]
#[test]
fn a_cache_has_no_name_before_it_is_whole() {
    use rustix::fs::{Mode, OFlags};
    let f = Fixture::new();
    if rustix::fs::open(f.dir.path(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).is_err() {
        // This file system has none; `folder`'s own tests have what happens then.
        return;
    }
    let gguf = Gguf::open(&f.model()).unwrap();
    let seen = std::sync::Mutex::new(Vec::new());
    let look = |_, _| {
        seen.lock().unwrap().push(fs::read_dir(f.dir.path()).unwrap().count());
    };
    let options = ImageOptions { progress: &look, ..Default::default() };
    WeightImage::load(&gguf, &f.specs, &options).unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.len() > 10 && seen.iter().all(|&files| files == 1), "the model alone: {seen:?}");
    assert_eq!(fs::read_dir(f.dir.path()).unwrap().count(), 2);
}

/// A load that is cancelled ends after the pieces under way, whatever it is doing, and leaves nothing in its
/// folder.
#[test]
fn a_load_that_is_cancelled_leaves_nothing() {
    let f = Fixture::new();
    let gguf = Gguf::open(&f.model()).unwrap();
    let cancelled = |cache: CachePolicy, pieces: u32| {
        let (cancel, reports) = (Cancel::default(), AtomicU32::new(0));
        let progress = |_, _| {
            // Pieces are packed in parallel: those under way on all threads still come.
            if reports.fetch_add(1, Ordering::Relaxed) + 1 >= pieces {
                cancel.cancel();
            }
        };
        let options = ImageOptions { cache, progress: &progress, part: None, cancel: cancel.clone() };
        if pieces == 0 {
            cancel.cancel();
        }
        let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let found = threads.install(|| WeightImage::load(&gguf, &f.specs, &options));
        assert!(reports.load(Ordering::Relaxed) <= pieces + 1, "{reports:?} pieces, two of them at once");
        assert!(matches!(found, Err(WeightError::Cancelled(_))), "after {pieces} pieces: {found:?}");
        f.no_drafts();
    };
    for pieces in [0, 1] {
        cancelled(CachePolicy::Off, pieces);
        cancelled(CachePolicy::Beside, pieces);
    }
    assert!(!f.cache().exists(), "half a cache");
    // While the content of a model that was touched is compared.
    f.load();
    let before = fs::read(f.cache()).unwrap();
    f.write_model(1);
    cancelled(CachePolicy::Beside, 1);
    assert!(fs::read(f.cache()).unwrap() == before, "the cache was changed");
    f.load();
}
