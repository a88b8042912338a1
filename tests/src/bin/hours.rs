//! Two hours of a mesh of twelve: see `fairmesh_tests::hours`.

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match fairmesh_tests::hours::main(&words) {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hours: {error:#}");
            std::process::ExitCode::from(2)
        }
    }
}
