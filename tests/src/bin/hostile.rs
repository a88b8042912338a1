//! A member, or a stranger, who means harm: see `fairmesh_tests::hostile`.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    fairmesh_tests::hostile::run(&words).await
}
