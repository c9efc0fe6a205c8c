//! The pieces in which the bytes of a peer arrive, for the targets that read a stream.

/// The greatest number of pieces of one input. A decoder looks at an unfinished message again for every piece, so more
/// of them would take most of the time, and say nothing new.
const PIECES_MAX: usize = 16;

/// Returns the ends of the pieces of `len` bytes, of which each has about `piece` bytes.
pub(crate) fn ends(len: usize, piece: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(piece.max(len / PIECES_MAX).max(1)).skip(1).chain([len])
}
