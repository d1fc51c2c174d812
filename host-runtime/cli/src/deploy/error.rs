//! What keeps a deployment from happening.

use std::path::{Path, PathBuf};

use hexflash::gguf::Clean;

/// A path as a terminal can be given it: names in a folder are whatever somebody made them.
fn shown(path: &Path) -> String {
    Clean(&path.to_string_lossy()).to_string()
}

/// A deployment failed. Every message is one line with a cause and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeployError {
    /// There is no adb.
    #[error(
        "cannot start {}: {source}; install Android's platform-tools, or say where adb is with --adb FILE",
        adb.display()
    )]
    NoAdb {
        /// What was started.
        adb: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// adb itself fails.
    #[error("adb failed ({text}); try `adb kill-server`, then `adb devices`")]
    Adb {
        /// What it says.
        text: String,
    },
    /// adb, or the device behind it, does nothing any more.
    #[error(
        "adb made no progress for {seconds} s while {what}; connect the device again, try \
         `adb kill-server`, or give it more time with --timeout SECONDS"
    )]
    Hung {
        /// What it was about.
        what: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// What calls itself adb prints and prints.
    #[error(
        "{} printed more than anything that adb has to say while {what}; name Android's adb with --adb FILE",
        adb.display()
    )]
    Endless {
        /// The program.
        adb: PathBuf,
        /// What it was about.
        what: String,
    },
    /// No device.
    #[error(
        "adb sees no device; connect one with USB debugging switched on, or `adb connect ADDRESS`, and \
         look with `adb devices`"
    )]
    NoDevice,
    /// Several devices.
    #[error("adb sees several devices ({there}); choose one with --serial")]
    Several {
        /// Their serial numbers.
        there: String,
    },
    /// Another device.
    #[error("adb sees no device {serial}; there is {there}: choose with --serial, or unset ANDROID_SERIAL")]
    NotThere {
        /// What was asked for.
        serial: String,
        /// The serial numbers that there are.
        there: String,
    },
    /// The user has not agreed.
    #[error(
        "device {serial} does not trust this computer; unlock it and agree to USB debugging on its screen"
    )]
    Unauthorized {
        /// Its serial number.
        serial: String,
    },
    /// It does not answer.
    #[error("device {serial} is offline; connect it again, or try `adb reconnect`")]
    Offline {
        /// Its serial number.
        serial: String,
    },
    /// It is in another state.
    #[error(
        "device {serial} is not ready (adb says \"{state}\"); start its system, and look with `adb devices`"
    )]
    NotReady {
        /// Its serial number.
        serial: String,
        /// What adb says.
        state: String,
    },
    /// The connection broke.
    #[error(
        "the connection to device {serial} broke ({text}); connect it again and repeat the command: it \
         goes on where it was"
    )]
    Lost {
        /// Its serial number.
        serial: String,
        /// The last that was heard.
        text: String,
    },
    /// A command on the device failed.
    #[error(
        "a command on the device ended with {code} ({text}); see that --to names a folder that can be written"
    )]
    Remote {
        /// Its exit code.
        code: i32,
        /// The last that it said.
        text: String,
    },
    /// The device's folder cannot be made or written.
    #[error("cannot write to {dir} on the device ({text}); choose another folder with --to DIR")]
    ReadOnly {
        /// The folder.
        dir: String,
        /// What the device says.
        text: String,
    },
    /// The folder is no full path.
    #[error("--to {dir} is no full path; give one that begins with /, as /data/local/tmp/hexflash")]
    Folder {
        /// What was given.
        dir: String,
    },
    /// The device has no room.
    #[error(
        "{dir} on the device has room for {} MiB, and {} MiB are missing there; delete something, or \
         choose another folder with --to DIR",
        free >> 20, needed.div_ceil(1 << 20)
    )]
    NoRoom {
        /// The folder.
        dir: String,
        /// Bytes to push.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// It ran out of room on the way.
    #[error(
        "{dir} on the device is full ({text}); delete something and repeat the command: it goes on where it was"
    )]
    Full {
        /// The folder.
        dir: String,
        /// What the device says.
        text: String,
    },
    /// What arrives is not what was sent.
    #[error(
        "{file}: what the device has at byte {at} is not what was sent, {tries} times over; try another \
         cable or port, and repeat the command"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// First byte of the piece.
        at: u64,
        /// How often it was sent.
        tries: u32,
    },
    /// Nothing to deploy.
    #[error(
        "there is no {} in {}; make the folder with `cargo xtask hexagon` and `{make}`, or name it with \
         --dist DIR",
        if *program { "library for the DSP" } else { "program hexflash" }, dir.display()
    )]
    Distribution {
        /// The folder.
        dir: PathBuf,
        /// The program is there, but no library.
        program: bool,
        /// The command that makes the folder.
        make: &'static str,
    },
    /// An emulator of phones.
    #[error(
        "the device runs Android on {machine}, as emulators do, and has no NPU; connect a phone with a \
         Snapdragon"
    )]
    Emulator {
        /// Processor of the device.
        machine: String,
    },
    /// An Android whose programs have 32 bits.
    #[error("the device's Android is for {abi}, and hexflash has 64 bits; use a device with arm64-v8a")]
    Narrow {
        /// Interface that the device's programs are for.
        abi: String,
    },
    /// An Android that is too old.
    #[error(
        "the device has Android of API {found}, and hexflash needs {lowest} (Android 9) or newer; update its \
         system, or use another device"
    )]
    OldAndroid {
        /// Level of its API.
        found: u32,
        /// The lowest that will do.
        lowest: u32,
    },
    /// A machine of another kind.
    #[error(
        "the device is {machine}, and only arm64 has a Hexagon NPU; connect a machine with a Snapdragon, or \
         name a folder for this one with --dist DIR"
    )]
    NoSnapdragon {
        /// Processor of the device.
        machine: String,
    },
    /// A system with another C library.
    #[error(
        "the device's system has musl as its C library, and there is no program for that; use a system with \
         glibc, as Debian and Ubuntu have, or name a folder of your own with --dist DIR"
    )]
    Musl,
    /// A system that starts no program that there is.
    #[error(
        "the device has no loader for programs of Android or of arm64 Linux with glibc; name a folder for its \
         system with --dist DIR"
    )]
    NoLoader,
    /// Not a program.
    #[error("{} is no 64-bit program for arm64; make it with `cargo xtask dist`", path.display())]
    NoProgram {
        /// The file.
        path: PathBuf,
    },
    /// A program for another processor.
    #[error(
        "{} is for {built}, and the device is {found}; give a folder for the device with --dist DIR",
        program.display()
    )]
    Machine {
        /// The program.
        program: PathBuf,
        /// What it is for.
        built: &'static str,
        /// What the device is.
        found: String,
    },
    /// A program for another system.
    #[error(
        "{} needs {interpreter}, which the device does not have; build for its system (docs/devices.md has \
         Android) and give the folder with --dist DIR",
        program.display()
    )]
    System {
        /// The program.
        program: PathBuf,
        /// What loads it.
        interpreter: String,
    },
    /// A file here cannot be read.
    #[error("cannot read {}: {source}; check the path and its rights", shown(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file here could not be read on the way.
    #[error(
        "a file could not be read while it was pushed: {source}; see that nobody changes it, and repeat \
         the command"
    )]
    Feed {
        /// The system's reason.
        source: std::io::Error,
    },
    /// It is not what it was when it was first read.
    #[error(
        "{} changed while it was pushed; see that nobody writes to it, and repeat the command",
        shown(path)
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A folder, a pipe or a device where a file should be.
    #[error(
        "{} is no regular file, and cannot be pushed; remove it, or put the file in its place",
        shown(path)
    )]
    NoFile {
        /// What it is called.
        path: PathBuf,
    },
    /// The command for the device is wrong.
    #[error("{text}; what follows -- is a command of hexflash: see hexflash --help")]
    Command {
        /// What is wrong.
        text: String,
    },
    /// A name that shells cannot be given.
    #[error("{} has a name that is not plain text; rename it", shown(path))]
    Name {
        /// The file.
        path: PathBuf,
    },
}

impl DeployError {
    /// Whether what was asked for is at fault, rather than adb or the device.
    pub(in super::super) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Several { .. }
                | Self::NotThere { .. }
                | Self::Folder { .. }
                | Self::Distribution { .. }
                | Self::Emulator { .. }
                | Self::Narrow { .. }
                | Self::OldAndroid { .. }
                | Self::NoSnapdragon { .. }
                | Self::Musl
                | Self::NoLoader
                | Self::NoProgram { .. }
                | Self::Machine { .. }
                | Self::System { .. }
                | Self::Read { .. }
                | Self::NoFile { .. }
                | Self::Command { .. }
                | Self::Name { .. }
        )
    }
}
