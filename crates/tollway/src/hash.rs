//! Hashes a limit and an id into the numbers that identify a bucket; neither is stored.
//!
//! ```text
//! (limit, id) ─┬─ tag    64 bits, which a slot keeps: 62 of the hash, CLIENT_MADE and CHANGED
//!              └─ shard  up to 13 bits, of the id alone and independent of the tag; no slot keeps them
//! ```
//!
//! The hash is keyed with random numbers that are drawn at start. Without them an attacker could choose ids that all
//! fall into one shard. Two ids share a bucket if they have the same shard and the same tag. Among ten million ids, in
//! the 1,024 shards of a store for as many, the chance that any two ever do is one in 90 million; among a million ids
//! one in nine billion.
//!
//! The tag's lowest bit is zero in every hash: a slot may set it to mark its bucket as changed, and is found all the
//! same. The bit above it says whether a client made the bucket, so that a table can count such buckets without storing
//! anything beside them.

use std::hash::{BuildHasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use tollway_core::Charge;

/// The most bytes of an id that is hashed in line: it is read as two words. Longer ones take more code, so they are
/// hashed by a call.
const INLINE_ID_MAX: usize = 16;

/// The random key that one process hashes with. It has two independent halves, one for the tag and one for the shard.
#[derive(Clone, Debug)]
pub(crate) struct HashKey {
    tag: RapidSecrets,
    shard: RapidSecrets,
}

/// The numbers that identify one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketHash {
    tag: Tag,
    shard: u64,
}

/// The hash of an id alone: all buckets of the id are found by it, each with the fingerprint of its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdHash {
    tag: u64,
    shard: u64,
}

/// The part of a hash that a slot keeps. A table keeps its slots in the order of their tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(u64);

impl HashKey {
    /// Returns the key that is made of these numbers, one for each half. They identify it in the files of a journal, so
    /// what is made of them must never change.
    pub(crate) const fn new([tag, shard]: [u64; 2]) -> Self {
        Self { tag: RapidSecrets::seed(tag), shard: RapidSecrets::seed(shard) }
    }

    /// Returns random numbers for a key.
    pub(crate) fn random_seeds() -> [u64; 2] {
        let random = RandomState::new();
        ["tag", "shard"].map(|half| random.hash_one(half))
    }

    #[cfg(test)]
    pub(crate) fn random() -> Self {
        Self::new(Self::random_seeds())
    }

    /// Hashes the bucket of a charge. Clients make those of inline limits.
    #[inline]
    pub(crate) fn hash(&self, charge: &Charge<'_>) -> BucketHash {
        self.hash_marked(charge.bucket_fingerprint(), charge.id(), charge.limit().is_inline())
    }

    /// Hashes the buckets of several charges in turn. Those of one bill usually have one id, which is hashed once.
    #[inline]
    pub(crate) fn hash_each<'c>(&self, charges: &'c [Charge<'_>]) -> impl Iterator<Item = BucketHash> {
        let mut last: Option<(&'c [u8], IdHash)> = None;
        charges.iter().map(move |charge| {
            let id = match last {
                // The same slice needs no comparison of its bytes.
                Some((id, hash)) if std::ptr::eq(id, charge.id()) || id == charge.id() => hash,
                _ => self.hash_id(charge.id()),
            };
            last = Some((charge.id(), id));
            id.bucket(charge.bucket_fingerprint(), mark_of(charge.limit().is_inline()))
        })
    }

    /// Hashes an id under a limit with this fingerprint, whose buckets clients make or not.
    #[inline(always)] // A call would be a tenth of the instructions of a decision.
    pub(crate) fn hash_marked(&self, fingerprint: u64, id: &[u8], client_made: bool) -> BucketHash {
        self.hash_id(id).bucket(fingerprint, mark_of(client_made))
    }

    /// Hashes an id under a limit with this fingerprint. The shard depends on the id alone: the buckets of one id under
    /// several limits are then behind one lock.
    #[inline]
    pub(crate) fn hash_of(&self, fingerprint: u64, id: &[u8]) -> BucketHash {
        self.hash_id(id).bucket(fingerprint, 0)
    }

    /// Hashes the name of a bucket that clients make at will, without a limit that somebody configured.
    #[inline]
    pub(crate) fn hash_client_made(&self, fingerprint: u64, name: &[u8]) -> BucketHash {
        self.hash_id(name).bucket(fingerprint, Tag::CLIENT_MADE)
    }

    #[inline(always)]
    fn hash_id(&self, id: &[u8]) -> IdHash {
        if id.len() <= INLINE_ID_MAX { self.hash_bytes(id) } else { self.hash_long(id) }
    }

    #[inline(never)]
    fn hash_long(&self, id: &[u8]) -> IdHash {
        self.hash_bytes(id)
    }

    #[inline(always)]
    fn hash_bytes(&self, id: &[u8]) -> IdHash {
        IdHash {
            tag: rapidhash_v3_nano_inline::<true, true>(id, &self.tag),
            // Without the last step of mixing: some bits of it only choose the shard.
            shard: rapidhash_v3_nano_inline::<false, true>(id, &self.shard),
        }
    }
}

impl IdHash {
    /// Returns the hash of the bucket that the id has under the limit with this fingerprint.
    #[inline]
    fn bucket(self, fingerprint: u64, mark: u64) -> BucketHash {
        let tag = (self.tag ^ fingerprint) & !Tag::MARKS;
        BucketHash { tag: Tag(tag.max(Tag::MIN) | mark), shard: self.shard }
    }
}

/// Returns the mark of a bucket that a client made or not. Without a branch: a server that mixes both kinds would
/// mispredict it.
#[inline]
const fn mark_of(client_made: bool) -> u64 {
    client_made as u64 * Tag::CLIENT_MADE
}

impl BucketHash {
    pub(crate) const NONE: Self = Self { tag: Tag::NONE, shard: 0 };

    /// Returns the part that a slot keeps.
    #[inline]
    pub(crate) const fn tag(self) -> Tag {
        self.tag
    }

    /// Returns the index of its shard. `shards` is a power of two.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of shards")]
    pub(crate) const fn shard(self, shards: usize) -> usize {
        self.shard as usize & (shards - 1)
    }

    /// Returns the tag and the number that the shard is a part of.
    #[inline]
    #[cfg(feature = "yaml")]
    pub(crate) const fn halves(self) -> (u64, u64) {
        (self.tag.0, self.shard)
    }

    /// Returns a hash that a test chooses.
    #[cfg(test)]
    pub(crate) fn of(tag: u64, shard: u64) -> Self {
        Self { tag: Tag((tag & !Tag::CHANGED).max(Tag::MIN)), shard }
    }
}

impl Tag {
    /// The value that marks an empty slot. No bucket has it.
    pub(crate) const NONE: Self = Self(0);
    /// The bit that a slot may set to mark its bucket as changed. No hash has it.
    const CHANGED: u64 = 1;
    /// The bit that marks a bucket as made by a client.
    const CLIENT_MADE: u64 = 1 << 1;
    const MARKS: u64 = Self::CHANGED | Self::CLIENT_MADE;
    /// The smallest tag of a bucket.
    const MIN: u64 = Self::MARKS + 1;

    #[inline]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    #[inline]
    pub(crate) const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the tag with the mark of a bucket that has changed.
    #[inline]
    #[cfg(feature = "journal")]
    pub(crate) const fn marked(self) -> Self {
        Self(self.0 | Self::CHANGED)
    }

    /// Returns the tag without the mark of a bucket that has changed.
    #[inline]
    #[cfg(feature = "journal")]
    pub(crate) const fn unmarked(self) -> Self {
        Self(self.0 & !Self::CHANGED)
    }

    /// Returns whether the bucket is marked as changed.
    #[inline]
    pub(crate) const fn is_marked(self) -> bool {
        self.0 & Self::CHANGED != 0
    }

    /// Returns whether a bucket can have this tag, which is not marked.
    #[cfg(feature = "journal")]
    pub(crate) const fn is_valid(self) -> bool {
        self.0 >= Self::MIN && !self.is_marked()
    }

    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns whether this is the tag of the same bucket as `other`, whichever of them is marked as changed.
    #[inline]
    pub(crate) const fn is_same(self, other: Self) -> bool {
        self.0 ^ other.0 <= Self::CHANGED
    }

    /// Returns whether a client made the bucket, without a limit that somebody configured.
    #[inline]
    pub(crate) const fn is_client_made(self) -> bool {
        self.0 & Self::CLIENT_MADE != 0
    }

    /// Returns its home among `homes`. A greater tag never has an earlier home: tables rely on this order.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "less than `homes`")]
    pub(crate) const fn home(self, homes: usize) -> usize {
        ((self.0 as u128 * homes as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_count_up_fill_all_shards_evenly() {
        let (key, shards, ids) = (HashKey::random(), 1_024, 200_000_u32);
        let mut counts = vec![0_u32; shards];
        for id in 0..ids {
            counts[key.hash_of(0, format!("user-{id:010}").as_bytes()).shard(shards)] += 1;
        }
        // The mean is 195. Without the last step of mixing, some keys spread ids that count up less evenly than chance
        // would: 70 to 315 was seen. No shard may be empty, or have several times the mean.
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(least > Some(&20) && most < Some(&600), "{least:?} to {most:?}");
    }

    #[test]
    fn hashes_of_a_known_key_never_change() {
        let key = HashKey::new([1, 2]);
        let id = b"0123456789abcdef0123456789abcdef0123456789abcdef0";
        let hashes = [0, 3, 8, 16, 17, 48, 49].map(|len| {
            let hash = key.hash_of(1 << 30, &id[..len]);
            (hash.tag.0, hash.shard)
        });
        let known = [
            (0xa998_ff2b_cc8f_75f4, 0x12eb_88e5_df68_542e),
            (0x8a96_8f0a_a905_f648, 0x2c8b_d577_2ac7_05e7),
            (0x848a_e496_670e_26a4, 0x1a20_f76e_9db2_456d),
            (0x05cf_5e6e_2c40_b304, 0x1b5a_3de0_4c1f_19cb),
            (0x4d0c_2e2d_b39d_0770, 0x3778_48d8_99fc_44ab),
            (0x105f_40b4_73e8_6280, 0x7f6a_a01a_e441_a60d),
            (0x363a_5b11_6e05_f00c, 0x85b7_0ca5_a8e3_ed2f),
        ];
        assert_eq!(hashes, known);
    }

    #[test]
    fn the_shard_is_the_ids_own_and_the_tag_is_the_buckets() {
        let key = HashKey::random();
        let (one, other) = (key.hash_of(1 << 20, b"alice"), key.hash_of(1 << 40, b"alice"));
        assert_eq!(one.shard, other.shard);
        assert_ne!(one.tag, other.tag);
        let client_made = key.hash_client_made(1 << 20, b"alice");
        assert_ne!(client_made.tag, one.tag);
        assert!(client_made.tag.is_client_made() && !one.tag.is_client_made());
    }

    #[test]
    fn a_tag_is_found_whether_it_is_marked_as_changed_or_not() {
        let tag = BucketHash::of(1 << 30, 0).tag();
        assert!(tag.is_same(Tag(tag.0 | Tag::CHANGED)) && Tag(tag.0 | Tag::CHANGED).is_same(tag));
        assert!(!tag.is_same(Tag(tag.0 | Tag::CLIENT_MADE)) && !tag.is_same(Tag::NONE));
    }
}
