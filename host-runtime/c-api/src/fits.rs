//! Whether a model will run on a chip, before anything of it is loaded.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use hexflash::device::{CHIPS, Chip, KnownChip};
use serde_json::json;

use crate::boundary::{Outcome, Text, give, owned};
use crate::failure::{Failure, Status};
use crate::settings;

/// Says how a model would fit the DSP of a chip, as JSON. Only the beginning of the file is read, and no
/// device.
///
/// `options` is that of `hexflash_open`, or NULL. `chip` is a version of the DSP ("v73"), the number of a
/// chip as Android has it in `Build.SOC_MODEL` ("SM8550"), or NULL for all versions. `json` has `n_ctx`
/// (tokens of a context), `weight_bits` (of a weight on average) and `chips`, of which each has `chip` (the
/// version), `sessions` (of the DSP; null where the model does not fit any number of them), `needs` (bytes of
/// each session), `limits`, and `remedy` (what would make it fit, or do with fewer). A model that hexflash
/// does not run is a failure. The caller frees `json` with `hexflash_free_text`.
///
/// # Safety
/// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
/// 2. `json` is NULL or leads to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_fits(
    path: *const c_char,
    options: *const c_char,
    chip: *const c_char,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    // SAFETY: all are as condition 1 says, and stay in this call.
    let (path, options, chip) = unsafe { (Text::new(path), Text::new(options), Text::new(chip)) };
    give(json, "json", || {
        let options = settings::model(options.get("options")?)?;
        let chip = chip.get("chip")?.map(find).transpose()?;
        let mut fit = options.fit(path.require("path")?)?;
        fit.chips.retain(|fit| chip.is_none_or(|chip| chip.name == fit.chip));
        owned(json!(fit).to_string())
    })
}

/// The version of the DSP that a word means.
fn find(word: &str) -> Outcome<Chip> {
    let by_name = CHIPS.into_iter().find(|chip| chip.name == word);
    by_name.or_else(|| KnownChip::of(word).map(|known| Chip::for_arch(known.arch))).ok_or_else(|| {
        let names = CHIPS.map(|chip| chip.name).join(", ");
        Failure::input(format!("the chip {word:?} is not known; give the version of its DSP, one of {names}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_go_by_version_and_by_number() {
        assert_eq!(find("v79").unwrap().name, "v79");
        assert_eq!(find("SM8550-AC").unwrap().name, "v73");
        assert!(format!("{:?}", find("MT6985").unwrap_err()).contains("one of v68, v69, v73"));
    }
}
