//! Compiling and rendering, on a thread of its own.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use minijinja::machinery::{CodeGenerator, Instructions, eval, make_string_output, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, Output, State, Value, escape_formatter};

use super::contain::contain;
use super::error::ChatError;
use super::limits::{FUEL, MAX_CHAIN, MAX_FRAMES, MAX_TEXT, PATIENCE, STACK};
use super::{guard, library, nesting, python, rewrite};

/// The name of every template.
const NAME: &str = "chat";

/// Runs `work` on a thread with a large stack, and waits for it as long as [`PATIENCE`] allows.
///
/// A thread that is left behind ends by itself; see [`chat`](super).
pub(super) fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ChatError> + Send + 'static,
) -> Result<T, ChatError> {
    let (sender, receiver) = sync_channel(1);
    let run = move || {
        guard::start_clock();
        let result = contain(work).unwrap_or_else(|panic| Err(ChatError::engine(&panic)));
        // Nobody takes it if the caller has given up.
        let _ = sender.send(result);
    };
    let spawned = thread::Builder::new().name("chat-template".to_owned()).stack_size(STACK).spawn(run);
    let thread = spawned.map_err(|error| ChatError::Thread { cause: error.to_string() })?;
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => {
            // It has nothing left to do; leak checkers want it gone.
            let _ = thread.join();
            result
        }
        Err(RecvTimeoutError::Timeout) => Err(ChatError::OutOfTime),
        Err(RecvTimeoutError::Disconnected) => Err(ChatError::engine("ended without a result")),
    }
}

/// Compiles a template to see whether it does.
pub(super) fn check(source: &str) -> Result<(), ChatError> {
    let syntax = blocks_trimmed()?;
    if let Some(line) = nesting::too_deep(source, &syntax) {
        let cause = format!("more than {MAX_CHAIN} operators follow one another");
        return Err(ChatError::Syntax { line, cause });
    }
    compile(source, syntax).map(drop)
}

/// Renders a template that [`check`] has accepted.
pub(super) fn render(source: &str, context: Value) -> Result<String, ChatError> {
    let (instructions, blocks) = compile(source, blocks_trimmed()?)?;
    let env = environment();
    let mut text = String::new();
    let mut out = make_string_output(&mut text);
    eval(&env, &instructions, context, &blocks, &mut out, AutoEscape::None)
        .map_err(|error| ChatError::render(&error))?;
    if text.len() > MAX_TEXT {
        return Err(ChatError::OutputTooLong);
    }
    Ok(text)
}

type Blocks<'a> = std::collections::BTreeMap<&'a str, Instructions<'a>>;

fn compile(source: &str, syntax: SyntaxConfig) -> Result<(Instructions<'_>, Blocks<'_>), ChatError> {
    let template = parse(source, NAME, syntax).map_err(|error| ChatError::syntax(&error))?;
    let guarded = rewrite::guarded(&template)
        .map_err(|refused| ChatError::Syntax { line: refused.line, cause: refused.cause.to_owned() })?;
    let mut code = CodeGenerator::new(NAME, source);
    code.compile_stmt(&guarded);
    Ok(code.finish())
}

/// What templates find there, with its limits.
fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_debug(false);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(MAX_FRAMES);
    env.set_formatter(print);
    guard::install(&mut env);
    library::install(&mut env);
    python::install(&mut env);
    env
}

/// Prints a value that is paid for.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.as_object().is_some() {
        guard::pay(state, value, 1)?;
    }
    if value.is_number() && !value.is_integer() {
        // Python's notation is another one where numbers are very large or small.
        if let Ok(float) = f64::try_from(value.clone()) {
            return Ok(out.write_str(&python::float_text(float))?);
        }
    }
    escape_formatter(out, state, value)
}

/// The syntax of Hugging Face: a tag takes the blanks before it and the line break behind it.
fn blocks_trimmed() -> Result<SyntaxConfig, ChatError> {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    syntax.build().map_err(|error| ChatError::syntax(&error))
}
