//! Back ends whose registers are shorter than a vector: a vector is an array of them, its chunks.
//!
//! Such a back end is a file that defines the operations of one chunk (`intrinsics!`) and derives the
//! [`Hvx`](super::Hvx) implementation from them (`backend!`). Arrays are spelled out element by element: with
//! loops or closures it would be up to the optimizer whether the intrinsics end up in the function that has
//! their target features.

/// An array of `$count` elements, `$e` with `$k` = 0, 1, ...
macro_rules! each {
    (2, $k:ident => $e:expr) => {
        [const_in!($k = 0, $e), const_in!($k = 1, $e)]
    };
    (4, $k:ident => $e:expr) => {
        [const_in!($k = 0, $e), const_in!($k = 1, $e), const_in!($k = 2, $e), const_in!($k = 3, $e)]
    };
    (8, $k:ident => $e:expr) => {
        [
            const_in!($k = 0, $e),
            const_in!($k = 1, $e),
            const_in!($k = 2, $e),
            const_in!($k = 3, $e),
            const_in!($k = 4, $e),
            const_in!($k = 5, $e),
            const_in!($k = 6, $e),
            const_in!($k = 7, $e),
        ]
    };
}

/// `$e` with the constant `$k`.
macro_rules! const_in {
    ($k:ident = $value:literal, $e:expr) => {{
        const $k: usize = $value;
        $e
    }};
}

/// Functions of one chunk, each an expression of intrinsics.
macro_rules! intrinsics {
    ($(fn $name:ident $(<const $n:ident: i32>)? ($($x:ident: $t:ty),*) -> $r:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name $(<const $n: i32>)? ($($x: $t),*) -> $r {
            // SAFETY: the processor has the instructions: these functions are private to a back end, the back
            // end is private to `hvx`, and the one function there that names it requires them.
            unsafe { $body }
        }
    )*};
}

/// Operations of a back end that do the same to every chunk.
macro_rules! chunkwise {
    ($count:tt: $(fn $op:ident $(<const $n:ident>)? ($($x:ident: $t:ident),*) -> $r:ident;)*) => {$(
        #[inline(always)]
        fn $op $(<const $n: i32>)? ($($x: Self::$t),*) -> Self::$r {
            each!($count, K => self::$op $(::<$n>)? ($($x[K]),*))
        }
    )*};
}

/// Implements `Hvx` for `$name`, whose vectors have `$count` chunks, from the functions of the surrounding
/// module.
///
/// These have the names and definitions of the trait's, on the types `F` and `I` (bytes are held as `I`),
/// with these exceptions: `load_n` and `store_n` take any count, below 1 for nothing and above `WIDTH` (the
/// lanes of a chunk) for all; `activations` prepares the word of activations for `vrmpy`, and `table` the
/// sixteen bytes for `lookup`.
///
/// `folds` lists which chunk is folded onto which to leave one: first the upper half onto the lower, and so
/// on. After that come methods for which there is something better than what the trait provides.
macro_rules! backend {
    (
        $name:ident: $count:tt chunks, $registers:literal registers, folds [$($to:literal $from:literal),*]
        $(, $($better:item)*)?
    ) => {
        impl $crate::hvx::Hvx for $name {
            type F = [F; $count];
            type I = [I; $count];
            type B = [I; $count];
            type Lanes = [f32; $crate::hvx::LANES];
            type Q = [F; $count];
            type Everywhere = $crate::hvx::portable::Portable;

            const REGISTERS: usize = $registers;

            // The wrapping additions: chunks past `n` may be anywhere; nothing is read or written there.

            #[inline(always)]
            unsafe fn load(p: *const f32) -> Self::F {
                // SAFETY: the chunks take `WIDTH` floats each from the first on, and `$count * WIDTH` is 32,
                // so together they read the 128 bytes that `p` is valid for (the caller's contract).
                unsafe { each!($count, K => self::load(p.add(K * WIDTH))) }
            }

            #[inline(always)]
            unsafe fn load_n(p: *const f32, n: usize) -> Self::F {
                let n = n.min($crate::hvx::LANES) as i32;
                // SAFETY: chunk K reads floats `K * WIDTH..n`, at most `WIDTH` of them and none if that range
                // is empty, so all are among the `n` floats that `p` is aligned and valid for (the caller's
                // contract, point 2).
                unsafe { each!($count, K => self::load_n(p.wrapping_add(K * WIDTH), n - (K * WIDTH) as i32)) }
            }

            #[inline(always)]
            unsafe fn store(p: *mut f32, v: Self::F) {
                // SAFETY: the chunks take `WIDTH` floats each from the first on, and `$count * WIDTH` is 32,
                // so together they write the 128 bytes that `p` is valid for (the caller's contract).
                unsafe { each!($count, K => self::store(p.add(K * WIDTH), v[K])) };
            }

            #[inline(always)]
            unsafe fn store_n(p: *mut f32, v: Self::F, n: usize) {
                let n = n.min($crate::hvx::LANES) as i32;
                // SAFETY: chunk K writes floats `K * WIDTH..n`, at most `WIDTH` of them and none if that
                // range is empty, so all are among the `n` floats that `p` is aligned and valid for (the
                // caller's contract, point 2).
                unsafe {
                    each!($count, K => self::store_n(p.wrapping_add(K * WIDTH), v[K], n - (K * WIDTH) as i32))
                };
            }

            #[inline(always)]
            unsafe fn load_b(p: *const u8) -> Self::B {
                // SAFETY: the chunks take `WIDTH * 4` bytes each from the first on, and `$count * WIDTH` is
                // 32, so together they read the 128 bytes that `p` is valid for (the caller's contract).
                unsafe { each!($count, K => self::load_b(p.add(K * WIDTH * 4))) }
            }

            #[inline(always)]
            unsafe fn store_b(p: *mut u8, v: Self::B) {
                // SAFETY: the chunks take `WIDTH * 4` bytes each from the first on, and `$count * WIDTH` is
                // 32, so together they write the 128 bytes that `p` is valid for (the caller's contract).
                unsafe { each!($count, K => self::store_b(p.add(K * WIDTH * 4), v[K])) };
            }

            #[inline(always)]
            fn splat(x: f32) -> Self::F {
                [self::splat(x); $count]
            }

            #[inline(always)]
            fn splat_i(x: i32) -> Self::I {
                [self::splat_i(x); $count]
            }

            #[inline(always)]
            fn splat_b(x: u8) -> Self::B {
                [self::splat_i(i32::from_ne_bytes([x; 4])); $count]
            }

            chunkwise! { $count:
                fn add(a: F, b: F) -> F;
                fn sub(a: F, b: F) -> F;
                fn mul(a: F, b: F) -> F;
                fn div(a: F, b: F) -> F;
                fn max(a: F, b: F) -> F;
                fn min(a: F, b: F) -> F;
                fn select_gt(a: F, b: F, x: F, y: F) -> F;
                fn to_int(x: F) -> I;
                fn to_float(x: I) -> F;
                fn bits(x: F) -> I;
                fn from_bits(x: I) -> F;
                fn add_i(a: I, b: I) -> I;
                fn sub_i(a: I, b: I) -> I;
                fn mul_i(a: I, b: I) -> I;
                fn max_i(a: I, b: I) -> I;
                fn and_i(a: I, b: I) -> I;
                fn or_i(a: I, b: I) -> I;
                fn shl_i<const N>(a: I) -> I;
                fn shr_i<const N>(a: I) -> I;
                fn sar_i<const N>(a: I) -> I;
            }

            #[inline(always)]
            fn mul_q(a: Self::F, b: Self::F) -> Self::Q {
                <Self as $crate::hvx::Hvx>::mul(a, b)
            }

            #[inline(always)]
            fn add_q(a: Self::Q, b: Self::Q) -> Self::Q {
                <Self as $crate::hvx::Hvx>::add(a, b)
            }

            #[inline(always)]
            fn add_qf(a: Self::Q, b: Self::F) -> Self::Q {
                <Self as $crate::hvx::Hvx>::add(a, b)
            }

            #[inline(always)]
            fn zero_q() -> Self::Q {
                <Self as $crate::hvx::Hvx>::splat(0.0)
            }

            #[inline(always)]
            fn float(x: Self::Q) -> Self::F {
                x
            }

            #[inline(always)]
            fn words(x: Self::B) -> Self::I {
                x
            }

            #[inline(always)]
            fn bytes(x: Self::I) -> Self::B {
                x
            }

            #[inline(always)]
            fn vrmpy(acc: Self::I, w: Self::B, a: i32) -> Self::I {
                let a = self::activations(a);
                each!($count, K => self::vrmpy(acc[K], w[K], a))
            }

            #[inline(always)]
            fn lookup(x: Self::B, table: &'static $crate::hvx::Lookup) -> Self::B {
                let table = self::table(&table.dense);
                each!($count, K => self::lookup(x[K], table))
            }

            #[inline(always)]
            fn lanes(x: Self::F) -> Self::Lanes {
                let mut lanes = [0.0; $crate::hvx::LANES];
                // SAFETY: `lanes` is an array of 32 floats, which are 128 bytes.
                unsafe { <Self as $crate::hvx::Hvx>::store(lanes.as_mut_ptr(), x) };
                lanes
            }

            #[inline(always)]
            fn lane(x: &Self::Lanes, i: usize) -> Self::F {
                [self::splat(x[i]); $count]
            }

            #[inline(always)]
            fn sum(mut x: Self::F) -> f32 {
                $(x[$to] = self::add(x[$to], x[$from]);)*
                self::sum(x[0])
            }

            #[inline(always)]
            fn max_lane(mut x: Self::F) -> f32 {
                $(x[$to] = self::max(x[$to], x[$from]);)*
                self::max_lane(x[0])
            }

            $($($better)*)?
        }
    };
}
