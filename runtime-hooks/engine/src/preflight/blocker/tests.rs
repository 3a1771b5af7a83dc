use stasis_config::{ExecSessions, Persistence};

use super::*;

fn finding(kind: BlockerKind, pid: i32) -> Finding {
    Finding {
        kind,
        pid,
        name: "rank".into(),
        evidence: format!("evidence {pid}"),
    }
}

#[test]
fn all_blockers_are_told_together_each_way_out_once() {
    let found = vec![
        finding(BlockerKind::IoUring, 3),
        finding(BlockerKind::NcclP2p, 1),
        finding(BlockerKind::NcclP2p, 2),
    ];
    let text = Blockers::check(found, &Settings::default())
        .unwrap_err()
        .to_string();
    for part in [
        "process 1 (rank): evidence 1, process 2 (rank): evidence 2; start the container with",
        "io.stasis.nccl=checkpointable, or the job with NCCL_P2P_DISABLE=1",
        "evidence 3",
        "allow = [\"nccl-p2p\", \"io-uring\"] in /etc/stasis/stasis.toml",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(text.matches("NCCL_P2P_DISABLE=1").count(), 1, "{text}");
}

#[test]
fn what_is_allowed_is_no_reason_and_is_not_forgotten() {
    let mut allow = Settings::default();
    allow.preflight.allow = vec![BlockerKind::IoUring];
    let both = vec![
        finding(BlockerKind::IoUring, 3),
        finding(BlockerKind::Mps, 1),
    ];
    let text = Blockers::check(both.clone(), &allow)
        .unwrap_err()
        .to_string();
    assert!(text.contains("mps") && !text.contains("io-uring"), "{text}");
    let allowed = Blockers::check(both[..1].to_vec(), &allow).unwrap();
    assert_eq!(allowed, both[..1]);
}

#[test]
fn exec_sessions_have_a_setting_of_their_own() {
    let mut refuse = Settings::default();
    refuse.preflight.exec = ExecSessions::Refuse;
    let session = finding(BlockerKind::ExecSession, 3);
    let text = |found: &[Finding]| {
        Blockers::check(found.to_vec(), &refuse)
            .unwrap_err()
            .to_string()
    };
    let alone = text(std::slice::from_ref(&session));
    assert!(
        alone.ends_with("preflight.exec = \"allow\" in /etc/stasis/stasis.toml"),
        "{alone}"
    );
    let both = text(&[session, finding(BlockerKind::Mps, 1)]);
    assert!(both.contains("preflight.exec = \"allow\""), "{both}");
    assert!(
        both.ends_with("preflight.allow = [\"mps\"] in /etc/stasis/stasis.toml"),
        "{both}"
    );
}

#[test]
fn persistence_mode_has_the_setting_of_restores() {
    let found = || vec![finding(BlockerKind::Persistence, 3)];
    let mut settings = Settings::default();
    let text = Blockers::check(found(), &settings).unwrap_err().to_string();
    assert!(
        text.ends_with("restore.persistence = \"ignore\" in /etc/stasis/stasis.toml"),
        "{text}"
    );
    settings.restore.persistence = Persistence::Ignore;
    assert_eq!(Blockers::check(found(), &settings).unwrap(), found());
}

#[test]
fn a_large_job_still_makes_a_readable_line() {
    let found = (1..=100)
        .map(|pid| finding(BlockerKind::NcclP2p, pid))
        .collect();
    let text = Blockers::check(found, &Settings::default())
        .unwrap_err()
        .to_string();
    assert!(text.contains("and 92 more") && text.len() < 1500, "{text}");
}

#[test]
fn every_kind_has_its_texts() {
    for kind in BlockerKind::ALL {
        assert!(
            !consequence(*kind).is_empty() && !way_out(*kind).is_empty(),
            "{kind}"
        );
    }
}
