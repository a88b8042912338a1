//! What `fairmesh policy publish` asks of a node.

use std::path::PathBuf;

use super::Control;
use crate::control::answer::{Answer, PublishedBody};
use crate::control::clean;

/// Hands a signed document to the node; gives what became of it.
///
/// # Errors
/// If the node cannot be asked, or refuses the document.
pub async fn publish(control: &Control, document: Vec<u8>) -> anyhow::Result<String> {
    let answer: Answer<PublishedBody> = control.post("/v1/documents", document).await?;
    Ok(clean(&answer.body.message))
}

/// The same for callers that cannot wait asynchronously, inside or outside of a runtime.
///
/// # Errors
/// As [`publish`].
pub fn publish_blocking(socket: PathBuf, document: Vec<u8>) -> anyhow::Result<String> {
    let publishing = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(publish(&Control::new(socket), document))
    };
    let joined = std::thread::spawn(publishing).join();
    joined.unwrap_or_else(|_| {
        Err(anyhow::anyhow!(
            "publishing ended in a panic: this is a bug"
        ))
    })
}
