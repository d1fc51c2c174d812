//! The weight cache: when it is reused, when it is rebuilt, and what it never touches.

mod common;

use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use common::random_rows;
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
        assert_eq!(image.memory().as_ptr() as usize % 4096, 0);
        image.verify().unwrap();
        image
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
        assert!(image.repacked_bytes() > 0);
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
fn built_once_then_mapped() {
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

#[test]
fn changed_content_is_found() {
    let f = Fixture::new();
    f.load();
    f.write_model(2);
    f.rebuilt("the model has changed");
}

/// Same header, same length, modification time set back. On Unix the inode's change time, which nobody can set, gives
/// it away; elsewhere it would not be noticed.
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

/// A start does not read the image's data, so that damage there is found on demand only.
#[test]
fn damaged_data_is_found_by_verify() {
    let f = Fixture::new();
    f.load();
    flip(&f.cache(), IMAGE + 1000);
    let image = f.load_with(CachePolicy::Beside);
    assert_eq!(image.repacked_bytes(), 0);
    let error = image.verify().unwrap_err();
    assert!(matches!(&error, WeightError::Damaged { path } if path.ends_with("model.gguf.hfcache")));
    assert!(error.to_string().contains("delete it"));
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
    image.verify().unwrap();
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
                    image.verify().unwrap();
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
fn a_link_is_followed() {
    let f = Fixture::new();
    let target = f.dir.path().join("elsewhere");
    fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, f.cache()).unwrap();
    f.load();
    assert!(f.cache().is_symlink() && fs::metadata(&target).unwrap().len() > IMAGE);
    f.reused();
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
        let options = ImageOptions { cache, progress: &progress, cancel: cancel.clone() };
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
