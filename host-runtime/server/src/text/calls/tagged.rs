//! Calls between tags.
//!
//! A value may have the tag in it that ends a call. So each closing tag is only where a call may end: it does
//! where what stands before it can be read as one, and else the next is tried.

use serde_json::Map;

use super::taken::Taken;
use super::{fence, gemma, json, mistral, python};
use crate::text::family::Family;
use crate::text::part::Call;
use crate::text::tags::{FUNCTION, Tags};
use crate::text::thoughts::overlap;
use crate::text::tools::Tools;

/// The tag before a function.
const OPEN: &str = "<tool_call>";
const PARAMETER: &str = "<parameter=";
const END_FUNCTION: &str = "</function>";
const END_PARAMETER: &str = "</parameter>";

/// Most closing tags at which no call ended, in all of an answer. Each is as much work as the text before it
/// is long, and no call that is meant to be one needs as many.
const MAX_FAILED: usize = 256;
/// Longest name of a function in bytes, with what stands around it.
const MAX_NAME: usize = 128;

/// Place within an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    /// Behind an opening tag.
    Inside,
    /// A function that has no opening tag before it.
    Bare,
    /// The object of a call that has no opening tag.
    Object,
}

/// A reader of an answer in which tags stand around calls.
pub(crate) struct Tagged {
    family: Family,
    tags: Tags,
    pub(super) taken: Taken,
    /// What may become a call.
    held: String,
    place: Place,
    /// Blanks before what may become a call.
    blanks: String,
    /// Bytes of `held` in which no call ends, and the first closing tag in them.
    tried: usize,
    first_end: Option<usize>,
    /// Brackets of the object, which tell where it ends.
    brackets: json::Brackets,
    failed: usize,
    /// What may follow and closes nothing that is open.
    leftover: Option<&'static str>,
}

impl Tagged {
    pub(super) fn new(family: Family, tags: Tags, taken: Taken) -> Self {
        Self {
            family,
            tags,
            taken,
            held: String::new(),
            place: Place::Outside,
            blanks: String::new(),
            tried: 0,
            first_end: None,
            brackets: json::Brackets::default(),
            failed: 0,
            leftover: None,
        }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.held.push_str(text);
        while self.advance(false) {}
    }

    pub(super) fn finish(&mut self) {
        while self.advance(true) {}
    }

    /// Goes on as far as what is held tells; whether it may go on further.
    fn advance(&mut self, has_ended: bool) -> bool {
        match self.place {
            Place::Outside => self.outside(has_ended),
            Place::Inside | Place::Bare => self.inside(has_ended),
            Place::Object => self.object(has_ended),
        }
    }

    fn outside(&mut self, has_ended: bool) -> bool {
        if let Some(leftover) = self.leftover {
            let begun = self.held.trim_start();
            if let Some(rest) = begun.strip_prefix(leftover) {
                self.held = rest.to_owned();
            } else if leftover.starts_with(begun) {
                // What was cut off within it is none of the answer, either.
                if has_ended {
                    self.held.clear();
                }
                return false;
            }
            self.leftover = None;
        }
        let open = self.tags.open;
        let bare = if self.family == Family::Functions { Some(FUNCTION) } else { None };
        let openings = [(Some(open), Place::Inside), (bare, Place::Bare)];
        let found = openings.iter().filter_map(|&(tag, place)| Some((self.held.find(tag?)?, place)));
        let object = if self.is_json() { json::object_of_call(&self.held) } else { None };
        let sure = object.and_then(|(at, is_sure)| is_sure.then_some((at, Place::Object)));
        let found = found.chain(sure);
        if let Some((at, place)) = found.min_by_key(|&(at, _)| at) {
            let text = fence::before(&self.held[..at]);
            let before: String = self.held.drain(..at).collect();
            self.taken.text(&before[..text]);
            before[text..].clone_into(&mut self.blanks);
            if place == Place::Inside {
                self.held.drain(..open.len());
            }
            (self.place, self.tried, self.first_end) = (place, 0, None);
            self.brackets = json::Brackets::default();
            return true;
        }
        // Blanks before a call are none of the answer's, and the end may be the beginning of a tag.
        let tags = [Some(open), bare].into_iter().flatten().map(|tag| overlap(&self.held, tag));
        let keep = tags.chain([fence::held(&self.held)]).max().unwrap_or(0);
        let end = self.held.len() - keep;
        let end = object.map_or(end, |(at, _)| at.min(end));
        let safe = fence::before(&self.held[..end]);
        let safe = if has_ended { self.held.len() } else { safe };
        let text: String = self.held.drain(..safe).collect();
        self.taken.text(&text);
        false
    }

    /// Whether calls are JSON, or may be.
    fn is_json(&self) -> bool {
        matches!(self.family, Family::Json | Family::Generic | Family::Functions)
    }

    /// Reads an object that has no tag before it: only the name of a tool makes it a call.
    fn object(&mut self, has_ended: bool) -> bool {
        let end = self.brackets.end(&self.held);
        if end.is_none() && !has_ended {
            return false;
        }
        let end = end.unwrap_or(self.held.len());
        let tools = self.taken.tools.clone();
        let call = json::call(&self.held[..end], has_ended && !self.taken.is_cut)
            .filter(|call| tools.is_some_and(|tools| tools.has(tools.resolve(&call.name))));
        match call {
            Some(call) => self.take(vec![call], end),
            None => self.give_up(),
        }
    }

    fn inside(&mut self, has_ended: bool) -> bool {
        if !self.may_begin() || self.failed > MAX_FAILED {
            return self.give_up();
        }
        let (end, included) = match (self.place, self.tags.close) {
            (Place::Bare, _) => (END_FUNCTION, true),
            (_, Some(close)) => (close, false),
            (_, None) => (self.tags.open, false),
        };
        while let Some(at) = self.held[self.tried..].find(end).map(|at| at + self.tried) {
            let behind = at + end.len();
            let block = if included { behind } else { at };
            if let Some(calls) = self.parse(block, Ends::Missing) {
                // Without a closing tag, the opening one is the next call's.
                let taken = if self.tags.close.is_none() { at } else { behind };
                return self.take(calls, taken);
            }
            if self.is_no_call(block) {
                return self.take_first().unwrap_or_else(|| self.give_up());
            }
            self.first_end.get_or_insert(block);
            self.tried = behind;
            self.failed += 1;
            if self.failed > MAX_FAILED {
                return self.give_up();
            }
        }
        self.tried = self.tried.max(self.held.len() - overlap(&self.held, end));
        if !has_ended {
            return false;
        }
        let all = self.held.len();
        let ends = if self.taken.is_cut { Ends::There } else { Ends::Missing };
        if let Some(calls) = self.parse(all, ends) {
            return self.take(calls, all);
        }
        // What has not become a call by the rules may be one that lacks more.
        let block = self.first_end.unwrap_or(all);
        let calls = if self.taken.is_cut { None } else { self.parse(block, Ends::Optional) };
        match calls {
            Some(calls) => self.take(calls, block),
            None => self.take_first().unwrap_or_else(|| self.give_up()),
        }
    }

    /// Takes what is complete at the beginning of a block that goes on with something else.
    fn take_first(&mut self) -> Option<bool> {
        let end = match self.held.trim_start().starts_with(FUNCTION) {
            true => self.held.rfind(END_FUNCTION)? + END_FUNCTION.len(),
            false if self.is_json() => json::Brackets::default().end(&self.held)?,
            false => return None,
        };
        let calls = self.parse(end, Ends::There)?;
        Some(self.take(calls, end))
    }

    /// Takes calls, and so many bytes with them.
    fn take(&mut self, calls: Vec<Call>, bytes: usize) -> bool {
        calls.into_iter().for_each(|call| self.taken.call(call));
        self.held.drain(..bytes);
        // A block of code ends behind the call. Else it is a function that has no opening tag, or that has
        // ended before its closing one.
        let is_fenced = self.blanks.contains(fence::FENCE);
        self.leftover = if is_fenced { Some(fence::FENCE) } else { self.tags.close };
        self.blanks.clear();
        self.place = Place::Outside;
        true
    }

    /// Takes what has begun for no call: its beginning is text, and a call may begin behind that.
    fn give_up(&mut self) -> bool {
        let begin = match self.place {
            Place::Bare => self.held.drain(..FUNCTION.len()).collect(),
            Place::Object => self.held.drain(..1).collect(),
            Place::Inside | Place::Outside => self.tags.open.to_owned(),
        };
        let blanks = std::mem::take(&mut self.blanks);
        self.taken.text(&(blanks + &begin));
        self.place = Place::Outside;
        true
    }

    /// Whether what is held may become a call. What cannot is not held back.
    fn may_begin(&self) -> bool {
        let begun = self.held.trim_start();
        let begins = |with: &str| begun.starts_with(with) || with.starts_with(begun);
        match self.family {
            _ if self.place == Place::Bare => {
                let name = &self.held[FUNCTION.len()..];
                match name.find('>') {
                    Some(end) if end <= MAX_NAME => {
                        let name = Call::new(&name[..end], Map::new()).name;
                        self.taken.tools.as_ref().is_some_and(|tools| tools.has(tools.resolve(&name)))
                    }
                    Some(_) => false,
                    None => name.len() <= MAX_NAME,
                }
            }
            Family::Json | Family::Generic | Family::Functions => {
                [FUNCTION, "{", "[", fence::FENCE].into_iter().any(begins)
            }
            Family::Gemma => begins(gemma::BEGIN),
            _ => true,
        }
    }

    /// Whether a block that is none cannot become a call with more text: its end is in no string.
    fn is_no_call(&self, block: usize) -> bool {
        let block = &self.held[..block];
        self.is_json() && block.trim_start().starts_with(['{', '[']) && !json::ends_in_string(block)
    }

    /// The calls that the first bytes of what is held are.
    fn parse(&self, block: usize, ends: Ends) -> Option<Vec<Call>> {
        let block = fence::without(&self.held[..block]);
        let tools = self.taken.tools.as_ref()?;
        let may_lack_ends = ends != Ends::There;
        match self.family {
            Family::Json | Family::Generic | Family::Functions if block.starts_with(FUNCTION) => {
                functions(block, tools, ends == Ends::Optional)
            }
            Family::Json | Family::Generic | Family::Functions => json::calls(block, may_lack_ends),
            Family::Lfm2 => {
                python::calls(block, tools, may_lack_ends).or_else(|| json::calls(block, may_lack_ends))
            }
            Family::Gemma => gemma::calls(block, may_lack_ends),
            Family::MistralList | Family::MistralNames => mistral::calls(block, may_lack_ends),
            // Their calls have other readers.
            Family::Llama | Family::Harmony => None,
        }
    }
}

/// Tags that a call may lack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Nothing: the answer was cut off.
    There,
    /// The last brackets.
    Missing,
    /// Closing tags within it, too.
    Optional,
}

/// Functions, one after the other.
fn functions(block: &str, tools: &Tools, may_lack_tags: bool) -> Option<Vec<Call>> {
    let mut all = Vec::new();
    let mut rest = block;
    while let Some(behind) = rest.strip_prefix(FUNCTION) {
        let (call, behind) = function(behind, tools, may_lack_tags)?;
        all.push(call);
        rest = behind.trim_start();
        // The next one may have a tag of its own where this one lacks its end.
        rest = rest.strip_prefix(OPEN).map_or(rest, str::trim_start);
    }
    (rest.is_empty() && !all.is_empty()).then_some(all)
}

/// Call that `<function=` begins, and the text behind it.
fn function<'t>(rest: &'t str, tools: &Tools, may_lack_tags: bool) -> Option<(Call, &'t str)> {
    let (name, mut rest) = rest.split_once('>')?;
    let mut call = Call::new(name, Map::new());
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        let end = rest.strip_prefix(END_FUNCTION);
        let lacks_end = may_lack_tags && (rest.is_empty() || rest.starts_with(FUNCTION));
        if let Some(behind) = end.or(lacks_end.then_some(rest)) {
            call = Call::new(&call.name, arguments);
            return Some((call, behind));
        }
        let (parameter, behind) = rest.strip_prefix(PARAMETER)?.split_once('>')?;
        let parameter = Call::new(parameter, Map::new()).name;
        let (mut text, mut rest_behind) = if may_lack_tags { first_value(behind)? } else { value(behind)? };
        let tool = tools.resolve(&call.name);
        let is_next = |name: &str| {
            name != parameter && !arguments.contains_key(name) && tools.has_parameter(tool, name)
        };
        if let Some(at) = next_parameter(text, is_next) {
            (text, rest_behind) = behind.split_at(at);
        }
        // A line break on each side belongs to the form.
        let text = text.strip_prefix('\n').unwrap_or(text);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let value = tools.value(tool, &parameter, text);
        arguments.insert(parameter, value);
        rest = rest_behind;
    }
}

/// The text of a parameter, and what comes behind its closing tag: the first one behind which the function
/// goes on, or ends.
fn value(text: &str) -> Option<(&str, &str)> {
    for (at, tag) in text.match_indices(END_PARAMETER) {
        let behind = &text[at + tag.len()..];
        let next = behind.trim_start();
        if next.starts_with(PARAMETER) {
            return Some((&text[..at], behind));
        }
        if let Some(end) = next.strip_prefix(END_FUNCTION) {
            let end = end.trim_start();
            if end.is_empty() || end.starts_with(FUNCTION) || end.starts_with(OPEN) {
                return Some((&text[..at], behind));
            }
        }
        // A call that lacks an end of its own, and the next one.
        if let Some(end) = next.strip_prefix("</tool_call>")
            && end.trim_start().starts_with(OPEN)
        {
            return None;
        }
    }
    None
}

/// Place in the text of a parameter where the next one begins, so that the closing tag of the first is
/// missing: on a line of its own, with a name that `is_next`.
fn next_parameter(text: &str, is_next: impl Fn(&str) -> bool) -> Option<usize> {
    text.match_indices(PARAMETER).map(|(at, _)| at).find(|&at| {
        let name = text[at + PARAMETER.len()..].split_once(">\n").map(|(name, _)| name);
        text[..at].ends_with('\n') && name.is_some_and(&is_next)
    })
}

/// The text of a parameter up to the first tag behind it, whichever it is.
fn first_value(text: &str) -> Option<(&str, &str)> {
    let tags = [END_PARAMETER, PARAMETER, END_FUNCTION];
    let (at, tag) = tags.iter().filter_map(|tag| Some((text.find(tag)?, *tag))).min()?;
    let behind = if tag == END_PARAMETER { at + tag.len() } else { at };
    Some((&text[..at], &text[behind..]))
}
