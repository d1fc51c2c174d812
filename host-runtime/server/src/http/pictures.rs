//! Pictures in messages, as the interfaces have them.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hexflash::model::Encoder;
use hexflash::picture::{Layout, Picture, PictureError, PicturePrompt};
use serde_json::{Map, Value};

use super::app::Model;
use super::error::ApiError;
use super::parts::kind;

/// Most pictures of a conversation: each may be some thousand rows.
const MAX_PICTURES: usize = 64;

/// Some clients pad, and others do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Whether a part of a message is a picture.
pub(super) fn is_picture(part: &Map<String, Value>) -> bool {
    matches!(kind(part), "image_url" | "image" | "input_image")
}

/// The bytes of a part that is a picture, in the form of any of the interfaces.
pub(super) fn bytes(part: &Map<String, Value>) -> Result<Vec<u8>, ApiError> {
    let missing = || ApiError::field("messages", format!("a part of type {} has no picture", kind(part)));
    let source = match (part.get("image_url"), part.get("source")) {
        // OpenAI's chats have an object, and responses have a text.
        (Some(Value::Object(object)), _) => object.get("url"),
        (Some(url), _) => Some(url),
        // Anthropic's.
        (None, Some(source)) => source.get("data").or_else(|| source.get("url")),
        (None, None) => part.get("image"),
    };
    decode(source.and_then(Value::as_str).ok_or_else(missing)?)
}

/// The bytes of a `data:` URL, or of base64 alone.
pub(super) fn decode(source: &str) -> Result<Vec<u8>, ApiError> {
    let data = match source.split_once(':') {
        Some(("data", rest)) => match rest.split_once(',') {
            Some((head, data)) if head.ends_with(";base64") => data,
            _ => return Err(ApiError::field("messages", "a data: URL of a picture must have base64")),
        },
        Some((scheme, _)) => {
            let scheme: String = scheme.chars().take(16).collect();
            let hint =
                format!("pictures are not fetched ({scheme}:); send the picture itself, as a data: URL");
            return Err(ApiError::unsupported("messages", &hint));
        }
        None => source,
    };
    let wrong = |error| ApiError::field("messages", format!("a picture is no base64: {error}"));
    BASE64.decode(data.trim()).map_err(wrong)
}

/// A picture, cut for an encoder.
fn layout(bytes: &[u8], encoder: &Encoder) -> Result<Layout, ApiError> {
    let wrong = |error: PictureError| ApiError::field("messages", error.to_string());
    Layout::new(&Picture::decode(bytes).map_err(wrong)?, encoder).map_err(wrong)
}

/// The prompt of a rendered conversation with these pictures in its places.
///
/// # Errors
/// The model has no encoder, a picture cannot be used, or the text has another number of places.
pub(super) fn prompt(rendered: &str, pictures: &[Vec<u8>], model: &Model) -> Result<PicturePrompt, ApiError> {
    let encoder = model.encoder.as_ref().ok_or_else(|| ApiError::no_images("messages"))?;
    if pictures.len() > MAX_PICTURES {
        let reason = format!("{} pictures are too many; send at most {MAX_PICTURES}", pictures.len());
        return Err(ApiError::field("messages", reason));
    }
    let layouts = pictures.iter().map(|bytes| layout(bytes, encoder)).collect::<Result<Vec<_>, _>>()?;
    let tokenizer = &model.card.text.tokenizer;
    let prompt = PicturePrompt::new(tokenizer, rendered, &layouts, encoder);
    prompt.map_err(|error| ApiError::field("messages", error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(part: Value) -> Result<Vec<u8>, ApiError> {
        let Value::Object(part) = part else { panic!("{part}") };
        assert!(is_picture(&part));
        bytes(&part)
    }

    #[test]
    fn pictures_come_in_the_form_of_each_interface() {
        for part in [
            json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,aGV4" } }),
            json!({ "type": "image_url", "image_url": { "url": "aGV4", "detail": "low" } }),
            json!({ "type": "input_image", "image_url": "data:image/jpeg;base64,aGV4" }),
            json!({
                "type": "image",
                "source": { "type": "base64", "media_type": "image/png", "data": "aGV4" },
            }),
        ] {
            assert_eq!(of(part).ok().as_deref(), Some(&b"hex"[..]));
        }
        for data in ["aA==", "aA"] {
            let part = json!({ "type": "image_url", "image_url": { "url": data } });
            assert_eq!(of(part).ok().as_deref(), Some(&b"h"[..]));
        }
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        for part in [
            json!({ "type": "image_url", "image_url": { "url": "https://example.com/a.png" } }),
            json!({ "type": "image_url", "image_url": { "url": "file:///etc/passwd" } }),
            json!({ "type": "image_url", "image_url": { "url": "data:image/svg+xml,%3Csvg/%3E" } }),
            json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,?" } }),
            json!({ "type": "image_url" }),
            json!({ "type": "image", "source": { "type": "url", "url": "http://example.com" } }),
        ] {
            assert!(of(part.clone()).is_err(), "{part}");
        }
    }
}
