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
        // Slices with negative steps are known.
        let is_known = text.contains("value/ops.rs");
        assert!(!matches!(error, ChatError::Engine { .. }) || is_known, "{text}");
    }
    assert_eq!(first, template.render(&messages, &options), "rendered again");
}
