//! TLS in Rust alone: rustls over Graviola, whose assembly is inside of Rust and needs no C compiler.

use std::sync::Arc;

use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// Whether this processor has the instructions that Graviola is written in: all Snapdragons that hexflash
/// runs on, and x86-64 from about 2015 on.
pub(super) fn is_possible() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("aes")
            && has!("ssse3")
            && has!("avx")
            && has!("avx2")
            && has!("adx")
            && has!("bmi1")
            && has!("bmi2")
            && has!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        has!("neon") && has!("aes") && has!("pmull") && has!("sha2")
    }
}

/// The settings. Certificates are those that the system trusts (or `SSL_CERT_FILE`); where there are none, as
/// in a bare shell on a phone, Mozilla's.
pub(super) fn config() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::info!("certificates of the system: {error}");
    }
    let system: Vec<_> = found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    let roots = match system.is_empty() {
        true => RootCerts::WebPki,
        false => RootCerts::new_with_certs(&system),
    };
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls_graviola::default_provider()))
        .root_certs(roots)
        .build()
}
