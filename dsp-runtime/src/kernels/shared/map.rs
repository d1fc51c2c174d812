//! Functions of one value that are known when the loop over a row is compiled.

use crate::hvx::Hvx;

/// y = f(x), with the parameters of f.
pub trait Map {
    fn of<H: Hvx>(&self, v: H::F) -> H::F;
}

/// Types for the functions of a module that have no parameters.
macro_rules! functions {
    ($module:ident: $($name:ident: $function:ident;)*) => {$(
        struct $name;

        impl Map for $name {
            #[inline(always)]
            fn of<H: Hvx>(&self, v: H::F) -> H::F {
                $module::$function::<H>(v)
            }
        }
    )*};
}

pub(crate) use functions;
