//! The stand-in finds what it is there to find: caches that nobody cared for.

use hexflash::device::htp::Htp;
use hexflash::device::{Device, DeviceError};

use cdsprpc::standin::StandIn;

/// What a generation of a few tokens leaves in the report.
fn report(config: &str) -> Vec<String> {
    report_of(&StandIn::new(config))
}

pub(crate) fn report_of(standin: &StandIn) -> Vec<String> {
    let prompt = ["run", "--no-repack-cache", "--temp", "0", "-n", "4", "def"];
    // Whatever it prints: old bytes are no text.
    standin.hexflash(&prompt).output().unwrap();
    standin.violations()
}

#[test]
fn a_clean_run_has_nothing_to_report() {
    assert_eq!(report(""), Vec::<String>::new());
}

#[test]
fn a_skel_that_forgets_to_write_back_is_found() {
    let found = report("forget=flush");
    assert!(found.iter().any(|line| line.contains("the DSP wrote at")), "{found:?}");
}

#[test]
fn a_dsp_that_forgets_to_drop_old_lines_is_found() {
    let found = report("forget=invalidate");
    assert!(found.iter().any(|line| line.contains("the CPU wrote at")), "{found:?}");
}

#[test]
fn a_session_that_leaves_things_behind_is_found() {
    let found = report("forget=power");
    assert!(found.iter().any(|line| line.contains("votes for power were not withdrawn")), "{found:?}");
}

/// Memory that is written after it was mapped reaches the DSP, whatever it is and whoever says so.
#[test]
fn memory_written_between_messages_is_told_of() {
    let standin = StandIn::new("");
    let mut device: Htp = standin.open().unwrap();
    let buffers: Vec<_> = (0..3).map(|_| device.allocate(10_000).unwrap()).collect();
    for (i, buffer) in buffers.iter().enumerate() {
        for at in [0, 4096, 9_000 + i] {
            buffer.memory.write(at, &[i as u8 + 1; 900]);
        }
        let more = device.allocate(100).unwrap();
        device.free(more).unwrap();
    }
    let freed = |device: &mut Htp| -> Result<(), DeviceError> {
        buffers.into_iter().try_for_each(|buffer| device.free(buffer))
    };
    freed(&mut device).unwrap();
    drop(device);
    standin.is_clean();
}
