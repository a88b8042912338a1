//! The file of `jobcomp/filetxt`, followed while it grows and is rotated.
//!
//! Invariant: a line is given once it is whole, and the position moves behind it with it; when the
//! file has been renamed, the rest of the old one is read before the new one. A file that has become
//! shorter was emptied in place, and is read from its beginning.
//! Deliberately not here: keeping the position (`cursor`), reading lines (`fairmesh-records`).

use std::fs::{self, File};
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fairmesh_records::{BatchRecord, Format, Options, Records};

use super::cursor::FilePosition;

/// What was read.
pub(super) struct Portion {
    /// The records.
    pub(super) records: Vec<BatchRecord>,
    /// Lines that made no sense, and why.
    pub(super) bad: Vec<String>,
    /// Where to go on.
    pub(super) next: FilePosition,
    /// Whether there may be more.
    pub(super) more: bool,
}

/// Reads up to `most` records on from `from`.
pub(super) fn read(
    path: &Path,
    from: Option<&FilePosition>,
    options: &Options,
    most: usize,
) -> io::Result<Portion> {
    let newest = File::open(path)?;
    let (inode, is_empty) = (newest.metadata()?.ino(), newest.metadata()?.len() == 0);
    let Some(from) = from.filter(|from| from.inode != inode) else {
        return portion(newest, inode, from, options, most);
    };
    let renamed = in_folder(path, from.inode);
    if let Some(old) = renamed {
        let mut rest = portion(old, from.inode, Some(from), options, most)?;
        // slurmctld writes to the old file until it is told of the new one.
        let has_news = rest.more || !rest.records.is_empty() || !rest.bad.is_empty();
        if has_news || is_empty {
            rest.more = has_news;
            return Ok(rest);
        }
    } else {
        tracing::warn!(
            file = %path.display(),
            "slurm feed: the file that was followed is gone; what was not read of it is lost \
             unless `fairmesh report` is given it"
        );
    }
    portion(newest, inode, None, options, most)
}

fn portion(
    mut file: File,
    inode: u64,
    from: Option<&FilePosition>,
    options: &Options,
    most: usize,
) -> io::Result<Portion> {
    let length = file.metadata()?.len();
    let start = from.map(|from| from.position.clone()).unwrap_or_default();
    let start = Some(start)
        .filter(|start| start.bytes <= length)
        .unwrap_or_default();
    file.seek(SeekFrom::Start(start.bytes))?;
    let format = Format::SlurmJobcomp;
    let mut lines = Records::resume(BufReader::new(file), format, options, start);
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    while records.len() + bad.len() < most {
        match lines.next() {
            Some(Ok(record)) => records.push(record),
            Some(Err(error)) => bad.push(error.to_string()),
            None => break,
        }
    }
    Ok(Portion {
        more: records.len() + bad.len() >= most,
        records,
        bad,
        next: FilePosition {
            inode,
            position: lines.cursor().clone(),
        },
    })
}

/// The file of this number beside `path`, which is where logs are rotated to.
fn in_folder(path: &Path, inode: u64) -> Option<File> {
    let folder = path.parent()?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let is_kin = entry.file_name().to_string_lossy().starts_with(&name);
        if is_kin
            && entry
                .metadata()
                .is_ok_and(|metadata| metadata.ino() == inode)
        {
            return File::open(entry.path()).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(job: u64) -> String {
        format!(
            "JobId={job} UserId=ann(7) GroupId=ann(7) Name=wrap JobState=COMPLETED Partition=main \
             TimeLimit=5 StartTime=2026-11-21T05:13:46 EndTime=2026-11-21T05:13:48 NodeList=n1 \
             NodeCnt=1 ProcCnt=8 WorkDir=/ ReservationName= Tres=cpu=8,node=1 Account=vo1 QOS= WcKey= \
             Cluster=unknown SubmitTime=2026-11-21T05:13:43 EligibleTime=2026-11-21T05:13:43 \
             DerivedExitCode=0:0 ExitCode=0:0 \n"
        )
    }

    struct Followed {
        _folder: tempfile::TempDir,
        path: std::path::PathBuf,
        at: Option<FilePosition>,
    }

    impl Followed {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("jobcomp.log");
            Self {
                _folder: folder,
                path,
                at: None,
            }
        }

        fn write(&self, text: &str) {
            let file = File::options().create(true).append(true).open(&self.path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
                .expect("written");
        }

        fn jobs(&mut self, most: usize) -> Vec<String> {
            let options = Options {
                cluster: "c".to_owned(),
                growing: true,
                ..Options::default()
            };
            let portion = read(&self.path, self.at.as_ref(), &options, most).expect("read");
            assert!(portion.bad.is_empty());
            self.at = Some(portion.next);
            let jobs = portion.records.into_iter();
            jobs.map(|record| record.key.job).collect()
        }
    }

    #[test]
    fn a_line_is_read_once_it_is_whole() {
        let mut file = Followed::new();
        let second = line(2);
        file.write(&line(1));
        file.write(&second[..40]);
        assert_eq!(file.jobs(10), ["1"]);
        assert_eq!(file.jobs(10), [""; 0]);
        file.write(&second[40..]);
        assert_eq!(file.jobs(10), ["2"]);
    }

    #[test]
    fn a_renamed_file_is_read_to_its_end_first() {
        let mut file = Followed::new();
        file.write(&line(1));
        assert_eq!(file.jobs(10), ["1"]);
        file.write(&line(2));
        fs::rename(&file.path, file.path.with_extension("log.1")).expect("renamed");
        file.write(&line(3));
        assert_eq!(file.jobs(10), ["2"]);
        assert_eq!(file.jobs(10), ["3"]);
        assert_eq!(file.jobs(10), [""; 0]);
    }

    #[test]
    fn an_emptied_file_begins_anew_and_portions_are_bounded() {
        let mut file = Followed::new();
        file.write(&(line(1) + &line(2) + &line(3)));
        assert_eq!(file.jobs(2), ["1", "2"]);
        assert_eq!(file.jobs(2), ["3"]);
        File::create(&file.path).expect("emptied");
        file.write(&line(4));
        assert_eq!(file.jobs(2), ["4"]);
    }
}
