//! A bare echo over a Unix socket, in a process of its own as the node is.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

/// The process. Killed when dropped.
pub(crate) struct Echo(Child);

impl Echo {
    pub(crate) fn start(socket: &Path) -> Self {
        let own = std::env::current_exe().expect("this program");
        let mut command = Command::new(own);
        command.arg("--echo").arg(socket).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let out = child.stdout.take().expect("piped");
        BufReader::new(out)
            .read_line(&mut String::new())
            .expect("it listens");
        Self(child)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // It may be gone already, which is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends back what comes, until it is killed.
pub(crate) fn serve(socket: &Path) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = UnixListener::bind(socket).expect("the path is free");
        println!("listens");
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 16 << 10];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
}
