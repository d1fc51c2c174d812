//! Chat templates: they end, and errors are one line.

use hexflash::chat::{ChatError, ChatTemplate, Message, RenderOptions};

/// The template, then roles and contents by turns, separated by 0xff, which no text has.
pub fn check(data: &[u8]) {
    let mut texts = data.split(|&b| b == 0xff).map(String::from_utf8_lossy);
    let Some(source) = texts.next() else { return };
    let texts: Vec<_> = texts.take(8).collect();
    let messages: Vec<_> =
        texts.chunks(2).map(|pair| Message::new(pair[0].clone(), pair[pair.len() - 1].clone())).collect();
    let template = match ChatTemplate::new(&source, "<s>", "</s>") {
        Ok(template) => template,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    let mut options = RenderOptions::for_answer().with("enable_thinking", false);
    options.now = Some(951_782_400);
    let first = template.render(&messages, &options);
    if let Err(error) = &first {
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        // Slices with the smallest step, `loop.cycle()`, and `continue` inside of `with` are known.
        let known = ["value/ops.rs", "vm/loop_object.rs", "vm/mod.rs", "vm/context.rs"];
        let is_known = known.iter().any(|place| text.contains(place));
        assert!(!matches!(error, ChatError::Engine { .. }) || is_known, "{text}");
    }
    let second = template.render(&messages, &options);
    // The clock is the one thing that differs.
    if first != Err(ChatError::OutOfTime) && second != Err(ChatError::OutOfTime) {
        assert_eq!(first, second, "rendered again");
    }
}
