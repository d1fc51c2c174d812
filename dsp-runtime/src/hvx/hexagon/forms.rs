//! Instructions of HVX float, one by one: what a session asks of a processor before it trusts it, and what
//! `hexflash selftest` asks of it.
//!
//! The code is compiled as it is written (`-disable-qfp-opt`), so that each form below is the instruction of
//! its name.

use core::arch::asm;
use core::arch::hexagon::v128::*;

use hexflash_abi::forms::{Form, Given, Words};

use super::{V, hvx};

/// Forms with a group that this code has: those that a session asks about before it starts.
pub const IN_CODE: u32 = {
    let mut bits = 0;
    if cfg!(not(any(target_feature = "hvxv79", feature = "plain"))) {
        bits |= Form::AddSf.bit() | Form::SubSf.bit() | Form::MpySf.bit() | Form::MpyAccSf.bit();
        bits |= Form::CvtSfHf.bit();
        if cfg!(target_feature = "hvxv73") {
            bits |= Form::MpyHf.bit() | Form::CvtHfSf.bit() | Form::CvtHfB.bit();
        }
    }
    bits
};

fn vector(words: &Words) -> V {
    // SAFETY: an array of as many words as a vector has; an unaligned read takes any address.
    unsafe { words.as_ptr().cast::<V>().read_unaligned() }
}

fn words(vector: V) -> Words {
    // SAFETY: both types are 128 bytes, as `transmute` checks, and every bit pattern is a value of both.
    unsafe { core::mem::transmute(vector) }
}

#[cfg(not(any(target_feature = "hvxv79", feature = "plain")))]
fn pair(pair: HvxVectorPair) -> Given {
    [words(hvx!(q6_v_lo_w(pair))), words(hvx!(q6_v_hi_w(pair)))]
}

fn single(vector: V) -> Given {
    [words(vector), [0; _]]
}

/// Floats of a vector of qfloats.
#[inline(always)]
fn sf(x: V) -> V {
    hvx!(q6_vsf_equals_vqf32(x))
}

/// Execution of a form; `None` where this code does not have it.
pub fn execute(form: Form, u: &Words, v: &Words, x: &[Words; 2]) -> Option<Given> {
    let (u, v) = (vector(u), vector(v));
    ieee(form, u, v, x).or_else(|| qfloat(form, u, v))
}

/// Forms of IEEE arithmetic.
#[cfg(not(any(target_feature = "hvxv79", feature = "plain")))]
fn ieee(form: Form, u: V, v: V, [low, high]: &[Words; 2]) -> Option<Given> {
    Some(match form {
        Form::AddSf => single(hvx!(q6_vsf_vadd_vsfvsf(u, v))),
        Form::SubSf => single(hvx!(q6_vsf_vsub_vsfvsf(u, v))),
        Form::MpySf => single(hvx!(q6_vsf_vmpy_vsfvsf(u, v))),
        Form::MpyAccSf => {
            let sums = hvx!(q6_w_vcombine_vv(vector(high), vector(low)));
            pair(hvx!(q6_wsf_vmpyacc_wsfvhfvhf(sums, u, v)))
        }
        Form::MpyHf => single(hvx!(q6_vhf_vmpy_vhfvhf(u, v))),
        Form::CvtSfHf => pair(hvx!(q6_wsf_vcvt_vhf(u))),
        Form::CvtHfSf => single(hvx!(q6_vhf_vcvt_vsfvsf(u, v))),
        Form::CvtHfB => pair(hvx!(q6_whf_vcvt_vb(u))),
        _ => return None,
    })
}

/// None from v79 on, nor in plain code.
#[cfg(any(target_feature = "hvxv79", feature = "plain"))]
fn ieee(_form: Form, _u: V, _v: V, _x: &[Words; 2]) -> Option<Given> {
    None
}

/// Forms of qfloat, which every version has.
fn qfloat(form: Form, u: V, v: V) -> Option<Given> {
    Some(match form {
        Form::QfAddSf => single(sf(hvx!(q6_vqf32_vadd_vsfvsf(u, v)))),
        Form::QfSubSf => single(sf(hvx!(q6_vqf32_vsub_vsfvsf(u, v)))),
        Form::QfMpySf => single(sf(hvx!(q6_vqf32_vmpy_vsfvsf(u, v)))),
        Form::QfMpyHf => {
            let products = hvx!(q6_wqf32_vmpy_vhfvhf(u, v));
            [words(sf(hvx!(q6_v_lo_w(products)))), words(sf(hvx!(q6_v_hi_w(products))))]
        }
        Form::HfOfQf => single(hvx!(q6_vhf_equals_wqf32(q6_wqf32_vmpy_vhfvhf(u, v)))),
        Form::MaxSf => single(hvx!(q6_vsf_vmax_vsfvsf(u, v))),
        Form::MinSf => single(hvx!(q6_vsf_vmin_vsfvsf(u, v))),
        Form::CopiedQf => single(copied(u, v)),
        Form::SquaredQf => {
            let difference = hvx!(q6_vqf32_vsub_vsfvsf(u, v));
            single(sf(hvx!(q6_vqf32_vmpy_vqf32vqf32(difference, difference))))
        }
        Form::QfAddHf => single(hvx!(q6_vhf_equals_vqf16(q6_vqf16_vadd_vhfvhf(u, v)))),
        #[cfg(target_feature = "hvxv73")]
        Form::SfOfW => single(hvx!(q6_vsf_equals_vw(u))),
        #[cfg(target_feature = "hvxv73")]
        Form::HfOfH => single(hvx!(q6_vhf_equals_vh(u))),
        _ => return None,
    })
}

/// The float of a qfloat product that was copied to another register before it was converted. A function of
/// its own, by whose name the check of lost bits lets the copy pass.
#[inline(never)]
fn copied(u: V, v: V) -> V {
    let float: V;
    // SAFETY: the assembly works on registers only: it multiplies `u` and `v`, copies the product, and
    // converts the copy.
    unsafe {
        asm!(
            "{product}.qf32 = vmpy({u}.sf,{v}.sf)",
            "{copy} = {product}",
            "{float}.sf = {copy}.qf32",
            u = in(vreg) u,
            v = in(vreg) v,
            product = out(vreg) _,
            copy = out(vreg) _,
            float = lateout(vreg) float,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    float
}
