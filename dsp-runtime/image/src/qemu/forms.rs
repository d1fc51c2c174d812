//! `IMAGE forms`: executes forms of float instructions, so that others can compare.
//!
//! Input, until it ends: records of [`Operands`]. Output, for each: a word, which is 1 where the image has
//! the form, and the words that it gives.

use hexflash_abi::forms::{Form, Operands};
use hexflash_dsp::hvx::hexagon::forms;
use zerocopy::{FromZeros, IntoBytes};

use super::stream::{read, write};
use super::{Failure, unusable};

pub(super) fn run() -> Result<(), Failure> {
    loop {
        let mut operands = Operands::new_zeroed();
        match read(operands.as_mut_bytes())? {
            0 => return Ok(()),
            n if n == size_of::<Operands>() => {}
            _ => return Err(unusable("the input ends inside of a record")),
        }
        let Operands { form, u, v, x } = &operands;
        let form = Form::parse(*form).ok_or(unusable("a record names no form"))?;
        let given = forms::execute(form, u, v, x);
        write(u32::from(given.is_some()).as_bytes())?;
        write(given.unwrap_or([[0; _]; _]).as_bytes())?;
    }
}
