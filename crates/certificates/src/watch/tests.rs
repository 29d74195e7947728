use fordway_testhost::certificates;
use tempfile::TempDir;

use super::*;

fn write(folder: &Path, file: &str, names: &[&str]) -> Files {
    let [certificate, key] = certificates::write(folder, file, names);
    Files { certificate, key }
}

/// The certificate for a name, in octets.
fn of(certificates: &Certificates, name: Option<&str>) -> Vec<u8> {
    certificates.loaded.load().choose(name).cert[0].to_vec()
}

/// How many changes were of use, and how many were not.
fn counts(certificates: &Certificates) -> [u64; 2] {
    [&certificates.counts.reloaded, &certificates.counts.failed].map(SharedCounter::get)
}

#[test]
fn names_choose() {
    let dir = TempDir::new().unwrap();
    let files = [
        write(dir.path(), "first", &["www.example.net", "Example.net"]),
        write(dir.path(), "wild", &["*.example.net"]),
        write(dir.path(), "other", &["a.example.org"]),
    ];
    let certificates = Certificates::new(&files, None).unwrap().unwrap();
    let [first, wild, other] = files.each_ref().map(|it| {
        let alone = Certificates::new(std::slice::from_ref(it), None).unwrap().unwrap();
        of(&alone, None)
    });
    for (name, expected) in [
        (None, &first),
        (Some("www.example.net"), &first),
        (Some("EXAMPLE.net"), &first),
        (Some("a.example.net"), &wild),
        (Some("a.b.example.net"), &first),
        (Some("A.example.org"), &other),
        (Some("unknown.example"), &first),
    ] {
        assert_eq!(of(&certificates, name), *expected, "{name:?}");
    }
    assert!(Certificates::new(&[], None).unwrap().is_none());
}

#[test]
fn changed_files_are_read_once_they_rest() {
    let dir = TempDir::new().unwrap();
    let files = [write(dir.path(), "one", &["a.example"])];
    let certificates = Certificates::new(&files, None).unwrap().unwrap();
    let counts = || counts(&certificates);
    let old = of(&certificates, None);
    certificates.look();
    certificates.look();
    assert_eq!(counts(), [0, 0]);
    write(dir.path(), "one", &["b.example"]);
    certificates.look();
    assert_eq!(of(&certificates, None), old);
    certificates.look();
    let new = of(&certificates, None);
    assert!(new != old && counts() == [1, 0]);
    // A key of another certificate; a file that is gone. Each is reported once.
    let key = fs::read(&files[0].key).unwrap();
    let other = write(dir.path(), "other", &["c.example"]);
    fs::copy(&other.key, &files[0].key).unwrap();
    for _ in 0..4 {
        certificates.look();
    }
    assert_eq!((of(&certificates, None), counts()), (new.clone(), [1, 1]));
    fs::remove_file(&files[0].certificate).unwrap();
    for _ in 0..4 {
        certificates.look();
    }
    assert_eq!((of(&certificates, None), counts()), (new.clone(), [1, 2]));
    fs::write(&files[0].key, key).unwrap();
    write(dir.path(), "one", &["d.example"]);
    certificates.look();
    certificates.look();
    assert!(of(&certificates, None) != new && counts() == [2, 2]);
}

#[test]
fn one_of_no_use_does_not_hold_up_others() {
    let dir = TempDir::new().unwrap();
    let files = ["one", "two"].map(|it| write(dir.path(), it, &[&format!("{it}.example")]));
    let certificates = Certificates::new(&files, None).unwrap().unwrap();
    let held = || ["one.example", "two.example"].map(|it| of(&certificates, Some(it)));
    let [one, two] = held();
    let look = || (0..3).for_each(|_| certificates.look());
    fs::write(&files[0].certificate, "nothing").unwrap();
    look();
    write(dir.path(), "two", &["two.example", "new.example"]);
    look();
    let [same, new] = held();
    assert!(same == one && new != two);
    assert_eq!(of(&certificates, Some("new.example")), new);
    assert_eq!(counts(&certificates), [1, 1]);
    // Other settings go on counting.
    let later = Certificates::new(&files[1..], Some(&certificates)).unwrap().unwrap();
    assert_eq!(counts(&later), [1, 1]);
}

#[test]
fn a_file_with_its_old_time_and_size_is_read() {
    let dir = TempDir::new().unwrap();
    let files = [write(dir.path(), "one", &["a.example"])];
    let certificates = Certificates::new(&files, None).unwrap().unwrap();
    let before = fs::metadata(&files[0].certificate).unwrap();
    // In place, as `cp --preserve` and rsync write it.
    let octets = fs::read(&files[0].certificate).unwrap();
    fs::write(&files[0].certificate, vec![b'x'; octets.len()]).unwrap();
    let file = fs::File::options().write(true).open(&files[0].certificate).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    let after = file.metadata().unwrap();
    assert_eq!((after.len(), after.mtime_nsec()), (before.len(), before.mtime_nsec()));
    (0..3).for_each(|_| certificates.look());
    assert_eq!(counts(&certificates), [0, 1]);
}

#[test]
fn looks_do_not_wait_for_each_other() {
    let dir = TempDir::new().unwrap();
    let files = [write(dir.path(), "one", &["a.example"])];
    let certificates = Certificates::new(&files, None).unwrap().unwrap();
    fs::write(&files[0].certificate, "nothing").unwrap();
    let first = certificates.watched.lock().unwrap();
    // It would never end if it waited.
    (0..3).for_each(|_| certificates.look());
    drop(first);
    assert_eq!(counts(&certificates), [0, 0]);
}

#[test]
fn a_first_reading_that_fails_says_where() {
    let dir = TempDir::new().unwrap();
    let one = write(dir.path(), "one", &["a.example"]);
    let other = write(dir.path(), "other", &["a.example"]);
    let mixed = Files { key: other.key, ..one.clone() };
    let error = Certificates::new(&[one.clone(), mixed], None).unwrap_err().to_string();
    assert!(error.contains("one.pem"), "{error}");
    fs::write(&one.certificate, "nothing").unwrap();
    let error = Certificates::new(&[one], None).unwrap_err().to_string();
    assert!(error.contains("one.pem: no certificate in it"), "{error}");
}
