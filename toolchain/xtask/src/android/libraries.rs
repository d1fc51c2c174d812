//! Android's libraries, as far as a program is linked with them: names, and the API level that brought each.
//!
//! The linker is given stand-ins that have these names and no code. What is not here cannot be linked, so
//! that no program needs a function that Android 9 has not.

use std::path::Path;

use object::write::Object;
use object::{Architecture, BinaryFormat, Endianness};

use super::target::API;
use crate::failure::{Failure, Result};
use crate::process;
use crate::toolchain::Toolchain;

/// Names of one library that came with the same API level, for one purpose.
struct Names {
    library: &'static str,
    /// The API level that brought them, or 21, the first with arm64.
    since: u32,
    /// Separated by blanks.
    names: &'static str,
}

const LIBC: &str = "libc.so";
const LIBDL: &str = "libdl.so";
const LIBM: &str = "libm.so";

/// The libraries: std asks for the log, too, which the linker leaves out again.
pub const LIBRARIES: [&str; 4] = [LIBC, LIBDL, LIBM, "liblog.so"];

/// Functions that hexflash and Rust's library call. The levels are facts of bionic, whose files
/// `libc/libc.map.txt`, `libm/libm.map.txt` and `libdl/libdl.map.txt` say `introduced=` where a name is
/// younger than arm64.
const CALLED: &[Names] = &[
    // The start of a program.
    Names { library: LIBC, since: 21, names: "__libc_init" },
    // Memory.
    Names {
        library: LIBC,
        since: 21,
        names: "calloc free malloc memcmp memcpy memmove memset mmap mmap64 mprotect munmap posix_memalign \
            realloc strlen",
    },
    // Files and folders.
    Names {
        library: LIBC,
        since: 21,
        names: "access chdir chroot close closedir dirfd dup dup2 fchmod fcntl fstat fstatat fsync ftruncate64 \
            getcwd ioctl isatty link linkat lseek64 lstat mkdir open openat64 opendir pipe2 pread64 pwrite64 \
            read readdir readlink readv realpath rename renameat stat symlink unlink unlinkat write writev",
    },
    // Threads.
    Names {
        library: LIBC,
        since: 21,
        names: "gettid prctl pthread_attr_destroy pthread_attr_init pthread_attr_setstacksize pthread_create \
            pthread_detach pthread_getspecific pthread_join pthread_key_create pthread_key_delete \
            pthread_setspecific sched_getaffinity sched_setaffinity sched_yield",
    },
    // Processes, signals and the environment.
    Names {
        library: LIBC,
        since: 21,
        names: "_exit abort environ execvp fork getenv geteuid getpid getrlimit64 kill raise setenv setgid \
            setgroups setpgid setsid setuid sigaction sigemptyset signal waitpid",
    },
    // Sockets, and waiting for them.
    Names {
        library: LIBC,
        since: 21,
        names: "bind connect epoll_create1 epoll_ctl epoll_wait eventfd freeaddrinfo gai_strerror getaddrinfo \
            getpeername getsockname getsockopt listen poll ppoll recv select send setsockopt shutdown socket \
            socketpair",
    },
    // Time, errors, and what the system is.
    Names {
        library: LIBC,
        since: 21,
        names: "__errno __system_property_get clock_gettime clock_nanosleep getauxval strerror_r syscall \
            sysconf sysinfo",
    },
    // Random numbers, and the terminal of a conversation.
    Names { library: LIBC, since: 28, names: "getrandom tcgetattr tcsetattr" },
    // FastRPC's library, and frames for the unwinder.
    Names { library: LIBDL, since: 21, names: "dl_iterate_phdr dlclose dlerror dlopen dlsym" },
    // Numbers.
    Names { library: LIBM, since: 21, names: "cos exp exp2 log log10 logf pow sin sincos" },
];

impl Names {
    fn all(&self) -> impl Iterator<Item = &'static str> {
        self.names.split_whitespace()
    }
}

/// The API level that brought a name; `None` for names that nobody has looked up.
pub fn since(name: &str) -> Option<u32> {
    CALLED.iter().find(|some| some.all().any(|it| it == name)).map(|some| some.since)
}

/// Everything that decides how the stand-ins come out: to be told from those of another list.
pub fn all() -> impl Iterator<Item = &'static str> {
    CALLED.iter().flat_map(|some| std::iter::once(some.library).chain(some.all()))
}

/// Makes the stand-ins in a folder.
pub fn write(toolchain: &Toolchain, folder: &Path) -> Result<()> {
    // The linker wants an object to know the processor.
    let empty = folder.join(format!("empty-{}", std::process::id()));
    let object = Object::new(BinaryFormat::Elf, Architecture::Aarch64, Endianness::Little);
    let written = object.write().map_err(std::io::Error::other);
    let written = written.and_then(|data| std::fs::write(&empty, data));
    written.map_err(|error| Failure::on_disk("write", &empty, &error))?;
    for library in LIBRARIES {
        let mut linker = toolchain.linker()?;
        linker.args(["-m", "aarch64linux", "-shared", "-soname", library, "-o"]);
        linker.arg(folder.join(library)).arg(&empty);
        for some in CALLED.iter().filter(|some| some.library == library && some.since <= API) {
            linker.args(some.all().map(|name| format!("--defsym={name}=0")));
        }
        process::run(&mut linker)?;
    }
    // It is of no other use.
    let _ = std::fs::remove_file(empty);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nothing_is_younger_than_the_oldest_android_that_we_are_for() {
        for some in CALLED {
            assert!((21..=API).contains(&some.since), "{}", some.names);
        }
    }

    #[test]
    fn names_are_sorted_and_have_one_place() {
        let mut seen = HashSet::new();
        for some in CALLED {
            assert!(LIBRARIES.contains(&some.library));
            assert!(some.all().is_sorted_by(|a, b| a < b), "{}", some.names);
            assert!(some.all().all(|name| seen.insert(name)), "{}", some.names);
        }
        assert_eq!((since("getrandom"), since("read"), since("statx")), (Some(28), Some(21), None));
    }
}
