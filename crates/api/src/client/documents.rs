//! What `fairmesh policy publish` asks of a node.

use anyhow::Context as _;
use fairmesh_model::clean;

use super::Control;
use crate::{Answer, DocumentsBody, PublishedBody};

/// Hands a signed document to the node; gives what became of it.
///
/// # Errors
/// If the node cannot be asked, or refuses the document.
pub async fn publish(control: &Control, document: Vec<u8>) -> anyhow::Result<String> {
    let answer: Answer<PublishedBody> = control.post("/v1/documents", document).await?;
    Ok(clean(&answer.body.message))
}

/// The signed documents in force at the node, as they were signed.
///
/// # Errors
/// If the node cannot be asked.
pub async fn held(control: &Control) -> anyhow::Result<Vec<Vec<u8>>> {
    let (answer, _) = control
        .get::<Answer<DocumentsBody>>("/v1/documents", &[])
        .await?;
    let documents = answer.body.documents.iter();
    let bytes = documents.map(|of| unhex(&of.bytes).context("the node gives no hexadecimal bytes"));
    bytes.collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_two_digits_each() {
        assert_eq!(unhex("00ff"), Some(vec![0, 255]));
        assert_eq!(unhex("0g"), None);
        assert_eq!(unhex("000"), None);
    }
}
