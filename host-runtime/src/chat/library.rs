//! The engine's filters, tests, functions and methods with bounds around them.
//!
//! Each pays for reading its arguments and has its result checked. Those that would make or repeat more than
//! they are given find out how much that is before they begin.

use minijinja::value::{Rest, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, functions, tests};
use minijinja_contrib::pycompat;

use super::error::Exceeded;
use super::guard::{Extent, pay, tame, too_long, too_many};
use super::limits::{MAX_DEPTH, MAX_ITEMS, MAX_SHORT, MAX_TEXT};
use super::python;

/// How often sorting looks at an item: the logarithm of [`MAX_ITEMS`], or so.
const SORTING: usize = 16;
/// Most characters that one field of a format is padded to without being asked for a width.
const FIELD: usize = 400;

/// Adds all of them.
pub(super) fn install(env: &mut Environment<'_>) {
    macro_rules! add {
        ($($check:expr => $($name:literal $function:path),+;)+) => {
            $($(add_filter(env, $name, Value::from_function($function), $check);)+)+
        };
    }
    add! {
        Check::Plain => "escape" python::escape, "e" python::escape,
            "int" python::int, "float" python::float, "lower" filters::lower,
            "upper" filters::upper, "title" filters::title, "capitalize" filters::capitalize,
            "items" filters::items, "reverse" filters::reverse, "chain" filters::chain, "zip" filters::zip,
            "list" filters::list, "string" filters::string, "attr" filters::attr,
            "default" filters::default, "d" filters::default;
        Check::Lined => "pprint" filters::pprint;
        Check::Characters => "trim" filters::trim;
        Check::Parts => "split" filters::split;
        Check::Lines => "lines" filters::lines;
        Check::Count => "batch" filters::batch, "slice" filters::slice;
        Check::Indent => "indent" python::indent;
        Check::Format => "format" filters::format;
        Check::Sum => "sum" filters::sum;
        Check::Join => "join" filters::join;
        Check::Path { at: None, times: 1 } => "map" filters::map, "select" filters::select,
            "reject" filters::reject;
        Check::Path { at: Some(1), times: 1 } => "selectattr" filters::selectattr,
            "rejectattr" filters::rejectattr;
        Check::Path { at: None, times: SORTING } => "sort" filters::sort, "unique" filters::unique,
            "min" filters::min, "max" filters::max, "dictsort" filters::dictsort;
        Check::Path { at: Some(1), times: SORTING } => "groupby" filters::groupby;
    }
    macro_rules! add_tests {
        ($($function:path => $($name:literal),+;)+) => {
            $($(add_test(env, $name, Value::from_function($function));)+)+
        };
    }
    add_tests! {
        tests::is_eq => "eq", "equalto", "==";
        tests::is_ne => "ne", "!=";
        tests::is_lt => "lt", "lessthan", "<";
        tests::is_le => "le", "<=";
        tests::is_gt => "gt", "greaterthan", ">";
        tests::is_ge => "ge", ">=";
        tests::is_in => "in";
        tests::is_startingwith => "startingwith";
        tests::is_endingwith => "endingwith";
        tests::is_lower => "lower";
        tests::is_upper => "upper";
        tests::is_sameas => "sameas";
    }
    // To the engine `none` is an empty list, and a text is none.
    add_test(env, "iterable", Value::from_function(python::is_iterable));
    add_test(env, "sequence", Value::from_function(python::is_sequence));
    env.add_function("range", around(Value::from_function(functions::range), Check::Plain));
    env.add_function("dict", around(Value::from_function(functions::dict), Check::Plain));
    env.add_function("namespace", around(Value::from_function(functions::namespace), Check::Stored));
    // It prints the whole state of the engine; Python has no such function.
    env.remove_global("debug");
    env.set_unknown_method_callback(method);
}

fn add_filter(env: &mut Environment<'_>, name: &'static str, inner: Value, check: Check) {
    env.add_filter(name, around(inner, check));
}

fn add_test(env: &mut Environment<'_>, name: &'static str, inner: Value) {
    let test = around(inner, Check::Plain);
    env.add_test(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
        test(state, args).map(|value| value.is_true())
    });
}

/// The function with its arguments paid for and checked, and its result checked.
fn around(
    inner: Value,
    check: Check,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state: &mut State, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        check.arguments(state, &args)?;
        let result = inner.call(state, &args)?;
        if check == Check::Stored { Ok(result) } else { tame(state, result) }
    }
}

/// What may be too much about the arguments of a filter, besides their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// Nothing.
    Plain,
    /// Each item is put on a line of its own.
    Lined,
    /// They become part of a value that changes later.
    Stored,
    /// Characters to strip.
    Characters,
    /// A text is split at another.
    Parts,
    /// A text is split into lines.
    Lines,
    /// A count of lists, or of items in each.
    Count,
    /// Blanks before each line.
    Indent,
    /// A text with widths in it.
    Format,
    /// Only numbers: lists and texts would be copied once for each item.
    Sum,
    /// A text between items, and a path.
    Join,
    /// A path of attributes (a position, or by name), followed for each item, and `times` that each item is
    /// looked at.
    Path { at: Option<usize>, times: usize },
}

impl Check {
    fn arguments(self, state: &State, args: &[Value]) -> Result<(), Error> {
        let times = if let Self::Path { times, .. } = self { times } else { 1 };
        let mut all = Extent::default();
        for value in args {
            let extent = pay(state, value, times)?;
            all.items += extent.items;
            all.text += extent.text;
        }
        let subject = args.first().and_then(Value::as_str).unwrap_or_default();
        let number = |value: &Value| value.as_usize().unwrap_or_default();
        match self {
            Self::Plain => Ok(()),
            Self::Lined => fits(all.items.saturating_mul(4 * MAX_DEPTH).saturating_add(all.text)),
            Self::Stored => {
                args.iter().try_for_each(|value| tame(state, Value::from(vec![value.clone()])).map(drop))
            }
            Self::Characters => short(args.get(1)),
            Self::Parts => match args.get(1).and_then(Value::as_str) {
                Some(separator) => few_parts(subject, separator),
                None => few(subject.split_whitespace()),
            },
            Self::Lines => few(subject.lines()),
            Self::Count if args.get(1).map_or(0, number) > MAX_ITEMS => Err(too_many()),
            Self::Count => Ok(()),
            Self::Indent => {
                let bytes = |value: &Value| value.as_str().map_or_else(|| number(value), str::len);
                let given = args.get(1).filter(|value| !value.is_kwargs()).cloned();
                let width = given.or_else(|| named(args, "width")).map_or(4, |width| bytes(&width));
                fits(width.saturating_mul(python::lines(subject).len()))
            }
            Self::Format => fits(formatted(subject, &args[1..], all.text)),
            Self::Sum => {
                short(args.get(1))?;
                short(named(args, "attribute").as_ref())?;
                let start = args.get(2).cloned().or_else(|| named(args, "start"));
                match start {
                    Some(start) if !start.is_number() && !start.is_kwargs() => {
                        Err(Error::new(ErrorKind::InvalidOperation, "sum adds numbers only"))
                    }
                    _ => Ok(()),
                }
            }
            Self::Join => {
                short(args.get(2).filter(|value| !value.is_kwargs()))?;
                short(named(args, "attribute").as_ref())?;
                let between = named(args, "d").or_else(|| args.get(1).cloned());
                let between = between.as_ref().and_then(Value::as_str).map_or(0, str::len);
                fits(between.saturating_mul(args.first().and_then(Value::len).unwrap_or_default()))
            }
            Self::Path { at, .. } => {
                short(at.and_then(|at| args.get(at)))?;
                short(named(args, "attribute").as_ref())
            }
        }
    }
}

/// A keyword argument.
fn named(args: &[Value], name: &str) -> Option<Value> {
    let kwargs = args.last().filter(|value| value.is_kwargs())?;
    kwargs.get_attr(name).ok().filter(|value| !value.is_undefined() && !value.is_none())
}

fn short(value: Option<&Value>) -> Result<(), Error> {
    match value.and_then(Value::as_str) {
        Some(text) if text.len() > MAX_SHORT => {
            Err(Exceeded::limit(format!("an argument of more than {MAX_SHORT} bytes")))
        }
        _ => Ok(()),
    }
}

fn fits(text: usize) -> Result<(), Error> {
    if text > MAX_TEXT { Err(too_long()) } else { Ok(()) }
}

fn few<T>(parts: impl Iterator<Item = T>) -> Result<(), Error> {
    if parts.take(MAX_ITEMS + 1).count() > MAX_ITEMS { Err(too_many()) } else { Ok(()) }
}

/// As Python has it, nothing is split at an empty text.
fn few_parts(text: &str, separator: &str) -> Result<(), Error> {
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    few(text.matches(separator))
}

/// No less than the length of a formatted text: any number in the format may be a width, and so may any
/// number among the arguments if the format has widths that are arguments.
fn formatted(format: &str, args: &[Value], text: usize) -> usize {
    let fields = format.bytes().filter(|&byte| byte == b'%' || byte == b'{').count();
    let numbers = format.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widths = numbers.map(|digits| digits.parse().unwrap_or(usize::MAX)).fold(0, usize::saturating_add);
    let given = args.iter().filter_map(|value| i64::try_from(value.clone()).ok());
    let given = given.map(|width| usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX)).max();
    let given = if format.contains('*') { given.unwrap_or_default() } else { 0 };
    let each = text.saturating_add(FIELD).saturating_add(given);
    fields.saturating_mul(each).saturating_add(widths).saturating_add(format.len())
}

/// Python's methods.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let mut all = pay(state, value, 1)?;
    for argument in args {
        all.text += pay(state, argument, 1)?.text;
    }
    if let Some(text) = value.as_str() {
        let first = args.first().and_then(Value::as_str);
        match name {
            "strip" | "lstrip" | "rstrip" => short(args.first())?,
            // An empty text is found around every character.
            "count" if first == Some("") => {
                let (_,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.chars().count() + 1));
            }
            "replace" => {
                let (old, new, count): (&str, &str, Option<i32>) = from_args(args)?;
                let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
                let found = text.matches(old).take(count).count();
                fits(found.saturating_mul(new.len()).saturating_add(text.len()))?;
            }
            "split" => match first {
                Some(separator) => few_parts(text, separator)?,
                None => few(text.split_whitespace())?,
            },
            "splitlines" => few(text.lines())?,
            "join" => {
                let items = args.first().and_then(Value::len).unwrap_or_default();
                fits(items.saturating_mul(text.len()).saturating_add(all.text))?;
            }
            "format" => fits(formatted(text, args, all.text))?,
            "title" if args.is_empty() => return tame(state, Value::from(python::title(text))),
            _ => {}
        }
    }
    let result = pycompat::unknown_method_callback(state, value, name, args)?;
    tame(state, result)
}
