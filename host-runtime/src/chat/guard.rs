//! Bounds on values: how deep they nest, how much is in them, and what they cost.
//!
//! The engine charges fuel for instructions and for the bytes and items that they make, but not for what it
//! finds inside of values: comparing, printing and dropping follow nested lists by recursion, and a list that
//! holds itself twice, thirty times over, has a billion items in thirty. So values are checked where they are
//! made ([`tame`]), whatever reads a whole value pays for it first ([`pay`]), and what the engine makes on
//! demand, item by item, is made at once: views of views of views would be a chain that it follows by
//! recursion.

use std::cell::Cell;
use std::time::Instant;

use minijinja::value::{DynObject, ObjectRepr, Tuple, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

use super::error::Exceeded;
use super::limits::{MAX_DEPTH, MAX_ITEMS, MAX_TEXT, TIME};

/// Filters that the compiler puts into templates. Their names cannot be written in a template.
pub(super) const TAME: &str = "\u{1}tame";
pub(super) const PAY: &str = "\u{1}pay";
pub(super) const STORE: &str = "\u{1}store";
pub(super) const LOOP_OVER: &str = "\u{1}loop_over";
pub(super) const TICK: &str = "\u{1}tick";

/// Items that cost one unit of fuel to look at.
const ITEMS_PER_FUEL: usize = 8;
/// Bytes that cost one unit of fuel to look at; also the engine's price.
const BYTES_PER_FUEL: usize = 64;

thread_local! {
    /// When the rendering on this thread has to end.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts the clock of this thread's rendering.
pub(super) fn start_clock() {
    DEADLINE.set(Instant::now().checked_add(TIME));
}

/// Adds the filters that the compiler relies on.
pub(super) fn install(env: &mut Environment<'_>) {
    env.add_filter(TAME, |state: &State, value: Value| tame(state, value));
    env.add_filter(PAY, |state: &State, value: Value| pay(state, &value, 1).map(|_| value));
    env.add_filter(STORE, |value: Value| match value.as_object().map(Class::of) {
        Some(Class::Live) => Err(stored_alias()),
        _ => Ok(value),
    });
    env.add_filter(LOOP_OVER, |value: Value| {
        tick()?;
        match value.as_str() {
            Some(text) if text.len() > MAX_ITEMS && text.chars().count() > MAX_ITEMS => Err(too_many()),
            _ => Ok(value),
        }
    });
    env.add_filter(TICK, |value: Value| tick().map(|()| value));
}

/// An error when the time is up.
pub(super) fn tick() -> Result<(), Error> {
    match DEADLINE.get() {
        Some(deadline) if Instant::now() > deadline => Err(Exceeded::Time.into()),
        _ => Ok(()),
    }
}

fn charge(state: &State, items: usize, text: usize) -> Result<(), Error> {
    state.consume_fuel((items / ITEMS_PER_FUEL + text / BYTES_PER_FUEL) as u64)
}

/// How much is in a value, all that is nested included.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    pub(super) items: usize,
    pub(super) text: usize,
}

impl Extent {
    fn add(&mut self, value: &Value) -> Result<(), Error> {
        self.items += 1;
        self.text = self.text.saturating_add(value.as_str().map_or(0, str::len));
        if self.items > MAX_ITEMS {
            return Err(too_many());
        }
        if self.text > MAX_TEXT {
            return Err(too_long());
        }
        Ok(())
    }

    fn measure(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.add(value)?;
        let Some(object) = value.as_object() else { return Ok(()) };
        if depth == MAX_DEPTH {
            return Err(too_deep());
        }
        match Class::of(object) {
            Class::Opaque => {}
            Class::Live if is_loop(object) => {}
            _ if object.repr() == ObjectRepr::Map => {
                for (key, value) in object.try_iter_pairs().into_iter().flatten() {
                    self.measure(&key, depth + 1)?;
                    self.measure(&value, depth + 1)?;
                }
            }
            _ => {
                for item in object.try_iter().into_iter().flatten() {
                    self.measure(&item, depth + 1)?;
                }
            }
        }
        Ok(())
    }
}

/// Pays for reading a whole value `times`; an error if it is too large.
pub(super) fn pay(state: &State, value: &Value, times: usize) -> Result<Extent, Error> {
    tick()?;
    let mut extent = Extent::default();
    extent.measure(value, 0)?;
    charge(state, times.saturating_mul(extent.items), times.saturating_mul(extent.text))?;
    Ok(extent)
}

/// The value as one that later work can be bounded for: neither deep nor large, and without views of others.
pub(super) fn tame(state: &State, value: Value) -> Result<Value, Error> {
    tick()?;
    let mut extent = Extent::default();
    let changed = rebuild(&value, 0, &mut extent)?;
    charge(state, extent.items, 0)?;
    Ok(changed.unwrap_or(value))
}

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Lists, tuples, dictionaries, groups: they own what is in them.
    Owned,
    /// Namespaces and loops: what is in them changes later, so that they must not become part of a value.
    Live,
    /// Functions and macros.
    Opaque,
    /// Makes its items on demand from other values.
    View,
}

impl Class {
    fn of(object: &DynObject) -> Self {
        if object.downcast_ref::<Vec<Value>>().is_some() || object.downcast_ref::<Tuple>().is_some() {
            return Self::Owned;
        }
        // The engine's own types have no public names.
        let name = object.type_name();
        let base = name.split('<').next().unwrap_or(name);
        match base.rsplit("::").next().unwrap_or(base) {
            "Namespace" | "Loop" => Self::Live,
            "Macro" | "BoxedFunction" => Self::Opaque,
            "IndexMap" | "GroupTuple" | "KwargsValues" => Self::Owned,
            _ if object.repr() == ObjectRepr::Plain => Self::Opaque,
            _ => Self::View,
        }
    }
}

fn is_loop(object: &DynObject) -> bool {
    object.type_name().ends_with("::Loop")
}

/// The value with views replaced by what they show; `None` if there are none.
fn rebuild(value: &Value, depth: usize, extent: &mut Extent) -> Result<Option<Value>, Error> {
    extent.add(value)?;
    let Some(object) = value.as_object() else { return Ok(None) };
    let class = Class::of(object);
    match class {
        Class::Opaque => return Ok(None),
        Class::Live if depth == 0 => return Ok(None),
        Class::Live => return Err(stored_alias()),
        Class::Owned | Class::View => {}
    }
    if depth == MAX_DEPTH {
        return Err(too_deep());
    }
    let mut changed = class == Class::View;
    let mut part = |value: Value| -> Result<Value, Error> {
        let value = checked(value)?;
        Ok(match rebuild(&value, depth + 1, extent)? {
            Some(new) => {
                changed = true;
                new
            }
            None => value,
        })
    };
    let mut new = None;
    if object.repr() == ObjectRepr::Map {
        let mut pairs = Vec::new();
        for (key, value) in object.try_iter_pairs().into_iter().flatten() {
            pairs.push((part(key)?, part(value)?));
        }
        if changed {
            new = Some(Value::from_pairs(pairs));
        }
    } else {
        let mut items = Vec::new();
        for item in object.try_iter().into_iter().flatten() {
            items.push(part(item)?);
        }
        if changed && !object.type_name().ends_with("GroupTuple") {
            let tuple = object.downcast_ref::<Tuple>().is_some();
            new = Some(if tuple { Tuple::from(items).into() } else { Value::from(items) });
        }
    }
    Ok(new)
}

/// The error that an iterator told of by an item, if this is one.
fn checked(value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Invalid {
        return Ok(value);
    }
    Value::from(vec![value]).try_iter()?.checked().next().unwrap_or(Ok(Value::UNDEFINED))
}

pub(super) fn too_long() -> Error {
    Exceeded::limit(format!("a value of more than {} MiB of text", MAX_TEXT >> 20))
}

pub(super) fn too_many() -> Error {
    Exceeded::limit(format!("a value of more than {MAX_ITEMS} items"))
}

fn too_deep() -> Error {
    Exceeded::limit(format!("a value that nests deeper than {MAX_DEPTH} levels"))
}

fn stored_alias() -> Error {
    let cause = "a namespace or a loop cannot be stored in another value";
    Error::new(ErrorKind::InvalidOperation, cause)
}
