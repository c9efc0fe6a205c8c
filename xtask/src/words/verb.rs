//! Decides whether an English sentence has a verb, by word lists.
//!
//! A summary has a verb if any of these holds:
//!
//! 1. It contains an auxiliary ("is", "has", "cannot"), or a contraction of one.
//! 2. It contains a participle: a word that ends in -ed or -ing, or an irregular one ("sent", "given"). A participle
//!    that describes a noun counts: "A parsed request" says what happened to the request.
//! 3. It contains a relative or subordinate clause: "that", "which", "who", "if", "when" and their like after its first
//!    word. No such clause is without a verb.
//! 4. It contains the third person of a verb of `VERBS` that is not a plural noun as well: "holds". Where it is one,
//!    as "limits", an article, a determiner or code must follow: "limits the requests".
//! 5. It begins with a verb of `VERBS` or, before an article, with any word in -s: "Limits requests". "Limits of a
//!    policy" and "Limits, by name" begin with a noun.
//! 6. It contains an infinitive: "to", "not", "can" and their like before a word of `VERBS`.
//!
//! The lists were gathered from this code base and from quinn-proto, governor, mini-redis and tower. They are wrong now
//! and then, in both directions: that is why the test allows a few percent. Add a verb here when a good summary is
//! counted.

/// Words that are a verb wherever they stand.
const AUXILIARIES: &str = "\
    am are aren't be been can can't cannot could couldn't did didn't do does doesn't don't had has hasn't have \
    haven't is isn't it's may might must shall should that's there's was wasn't were weren't will won't would";

/// Participles and past tenses that do not end in -ed.
const IRREGULAR: &str = "\
    begun borne bought bound broken brought built came caught chosen come cut dealt done drawn driven fed fell fit \
    forgotten fought found frozen gave given gone got grown hashed heard held hidden kept known laid led lent lost \
    made meant met overridden paid put ran read reset rewritten run said sat saw seen sent shown shut sold sought \
    spent split spread stood stuck sworn taken taught thought thrown told took understood undone went woken won \
    wound written wrote";

/// Words in -ed and -ing that are no participles.
const NO_PARTICIPLES: &str = "\
    anything bed during embed everything exceed feed hundred indeed king need nothing proceed red ring seed shed \
    something speed spring string substring succeed thing timing weed wing";

/// Words after which a clause with a verb of its own follows.
const CLAUSES: &str = "\
    because how if that unless what whatever when where whether which while who whom whose why";

/// Words after which "that" is a determiner or a pronoun, and no clause follows.
const BEFORE_A_DETERMINER: &str = "\
    after as at before by for from in like of on over than to under with";

/// Words that stand before a noun, and so after a verb.
const DETERMINERS: &str = "\
    a all an another any each either every everything exactly how if it its itself no nothing one our several some \
    something that the their them these this those two us what when where whether which your";

/// Words and marks that stand after a noun in -s at the beginning, not after a verb.
const AFTER_A_NOUN: &str = "\
    , about after and as at before between but by for from in of on or over per than that to under until which who whose \
    with within without";

/// Words that stand before the infinitive of a verb.
const BEFORE_AN_INFINITIVE: &str = "\
    and both i let lets never not then they to we you";

/// Verbs of these programs, in the infinitive.
const VERBS: &str = "\
    abandon abort accept access account accumulate acknowledge acquire act adapt add adjust admit adopt advance \
    advertise affect aggregate agree allocate allow alternate announce answer append apply approximate arise arm \
    arrange arrive ask assemble assert assign associate assume attach attempt authenticate await back balance ban \
    batch become begin behave belong benchmark bind block boot borrow bound bring broadcast buffer build bump \
    bundle call cancel carry catch cause change charge check choose claim clamp clean clear clone close coalesce \
    collapse collect combine come commit compare compile complete compose compress compute concatenate configure \
    confirm connect consider consist construct consult consume contain continue contribute control convert \
    coordinate copy correspond cost count cover crash create cross cut deal debit debounce decide declare decline \
    decode decompress decorate decrease decrement decrypt deduplicate default defer define delay delegate delete \
    deliver demand deny depend deref derive describe deserialize destroy detach detect determine dial die differ \
    disable discard disconnect dispatch display distinguish distribute disturb divide do document double drain \
    drive drop dump duplicate echo elapse emit emulate enable encode encompass encounter encrypt end enforce \
    enqueue ensure enter enumerate erase escape establish estimate evaluate evict examine exceed exchange exclude \
    execute exempt exercise exhaust exist exit expand expect expire explain export expose express extend extract \
    fail fall feed fetch fill filter find finish fire fit fix flag flatten flip floor flow flush follow forbid \
    force forget format forward frame free freeze generate get give go govern grant group grow guarantee guard \
    guess handle hang happen hash have hear help hide hint hit hold hook identify ignore implement imply import \
    improve include increase increment index indicate infer inform inherit initialize initiate inject insert \
    inspect install instruct interleave intern interpret interrupt introduce invalidate invoke issue iterate \
    jitter join judge jump keep kick kill know label lack land last launch lead leak leap learn leave lend let lex \
    lie lift limit link list listen live load load-test locate lock log look lookup loosen lose lower maintain make manage \
    map mark mask match mean measure meet mend merge mimic mirror miss mix mock modify monitor move multiply must \
    name need negate negotiate normalize note notice notify number obey observe obtain occupy occur offer omit \
    open operate optimize order outlive overflow overlap override overrun overtake overwrite own pack pad parse \
    partition pass patch pause pay peek perform permit pick pin ping place plan play plot point poison poll pop \
    populate post postpone pre-compute precede predict prefer prefetch prefix prepare prepend present preserve \
    press pretend prevent print probe proceed process produce profile project promise promote propagate protect \
    prove provide prune publish pull purge push put query queue quote raise rank read reap rebuild recall receive \
    reckon recognize reconnect record recover redial reduce refer reflect refresh refund refuse regard register \
    reject relate relax release reload rely remain remember remove rename render renew reorder repeat replace \
    replay reply report represent request require reread rescale resemble reserve reset resize resolve respect \
    respond rest restart restore restrict resume retain retire retrieve retry return reuse reverse revert review \
    rewind rewrite ring round route run sample save say scale scan schedule score seal search see seed seek seem \
    select send separate serialize serve set settle shard share shield shift show shrink shut shutdown sign signal \
    simulate sit skip sleep slice slow smooth smuggle sort span spawn speak specify spell spend spin split spread \
    stall stand start starve state stay stem step stop store stream stretch strip subscribe substitute subtract \
    succeed suffice suggest suit sum supply support suppose surprise suspend swap sweep switch synchronize tag \
    take talk tear tell terminate test throttle throw tick tie tighten time tolerate total touch trace track \
    transfer transform translate transmit transport traverse treat trigger trim truncate trust try tune turn type \
    unblock undergo understand undo unify unlock unpack unregister unset unsubscribe unwrap update upgrade use \
    validate vanish vary verify view violate visit wait wake walk want warn waste watch wed weigh win wind wire \
    withdraw work wrap write yield zero";

/// Verbs that are nouns as well, in both forms: "limit" and "limits". They count only where a verb must stand.
const NOUNS_AS_WELL: &str = "\
    access account alternate answer approximate associate attempt back balance ban batch benchmark block bound \
    buffer bundle call cause change charge check claim clone control copy cost count cover crash cross cut deal \
    default delay demand die display document double drain drop dump duplicate echo end escape estimate exchange \
    exit export feed filter fire fit fix flag floor flow force format forward group guarantee guard guess hash \
    hint hit hook import increase index issue judge jump label lack land last launch lead leak lift limit link \
    list live load lock log lookup map mark mask mean measure mirror miss mock monitor name note notice number \
    offer order override pack pad patch pause pay pick pin ping place plan play plot point poll post prefix \
    present press print probe profile project promise query queue quote record refund regard release reply report \
    request rest reverse review ring round route sample save scale schedule score seal search seed share shift \
    sign signal slice slow smooth sort span spin spread stall state step store stream stretch strip sum supply \
    support swap tag talk test throttle tick time total touch trace track transfer transport trigger trust tune \
    type upgrade view visit waste watch win wind wire work wrap zero";

/// Returns whether a sentence has a verb, as far as the rules above can tell.
pub fn is_in(sentence: &str) -> bool {
    let words = words(sentence);
    // An adverb may come first: "Optionally adds a layer".
    let adverbs = words.iter().take_while(|word| word.ends_with("ly") && !is_infinitive(word)).count();
    begins_with_verb(&words[adverbs..]) || (0..words.len()).any(|at| is_verb(&words, at))
}

fn begins_with_verb(words: &[String]) -> bool {
    let Some(first) = words.first() else { return false };
    let next = words.get(1).map_or("", String::as_str);
    let root = if ends_like_third_person(first) { infinitive(first) } else { first.clone() };
    if !is_infinitive(&root) {
        return root != *first && is_determiner(next);
    }
    !is_noun_as_well(&root) || (if root == *first { is_determiner(next) } else { !has(AFTER_A_NOUN, next) })
}

/// Returns whether a phrase is long enough to document a field, a variant or a constant: three words, an article or
/// determiner in front of one, code, or a verb.
pub fn is_enough_for_a_value(phrase: &str) -> bool {
    let words = words(phrase);
    let first = words.first().map(String::as_str).unwrap_or_default();
    let has_article =
        ["a", "an", "the", "all", "any", "each", "every", "this", "these", "one"].contains(&first);
    words.len() >= 3 || (words.len() == 2 && has_article) || first.starts_with('`') || is_in(phrase)
}

fn is_verb(words: &[String], at: usize) -> bool {
    let word = words[at].as_str();
    let next = words.get(at + 1).map_or("", String::as_str);
    if has(AUXILIARIES, word) || is_participle(word) || is_third_person(word) {
        return true;
    }
    let Some(before) = at.checked_sub(1).map(|before| words[before].as_str()) else { return false };
    let is_clause =
        has(CLAUSES, word) && !next.is_empty() && !(word == "that" && has(BEFORE_A_DETERMINER, before));
    let is_if_any = word == "if" && ["any", "so", "not"].contains(&next);
    // "Buckets charge the caller": one of the words that may be a noun, between a noun and an article.
    let has_object = is_infinitive(&infinitive(word)) && is_determiner(next) && next != "that";
    let is_plural = is_infinitive(word) && ends_like_third_person(before);
    let has_subject = ["they", "we", "you"].contains(&before) && !next.is_empty();
    (is_clause && !is_if_any)
        || has_subject
        || (has(BEFORE_AN_INFINITIVE, before) && is_infinitive(word))
        || (ends_like_third_person(word) && has_object)
        || (is_plural && (!is_noun_as_well(word) || has_object))
}

fn is_participle(word: &str) -> bool {
    let regular = word.len() > 3 && (word.ends_with("ed") || word.ends_with("ing"));
    has(IRREGULAR, word) || (regular && !has(NO_PARTICIPLES, word))
}

fn is_infinitive(word: &str) -> bool {
    has(VERBS, word)
}

fn is_noun_as_well(word: &str) -> bool {
    has(NOUNS_AS_WELL, word)
}

fn is_third_person(word: &str) -> bool {
    ends_like_third_person(word) && is_infinitive(&infinitive(word)) && !is_noun_as_well(&infinitive(word))
}

fn ends_like_third_person(word: &str) -> bool {
    word.len() > 2
        && word.ends_with('s')
        && !word.ends_with("ss")
        && !word.ends_with("us")
        && !word.starts_with('`')
}

/// Returns the infinitive of a third person: "holds", "does", "tries", "passes".
fn infinitive(word: &str) -> String {
    let es = ["shes", "ches", "sses", "xes", "oes", "zzes"];
    if let Some(stem) = word.strip_suffix("ies") {
        format!("{stem}y")
    } else if es.iter().any(|ending| word.ends_with(ending)) {
        word[..word.len() - 2].to_owned()
    } else {
        word.strip_suffix('s').unwrap_or(word).to_owned()
    }
}

fn is_determiner(word: &str) -> bool {
    has(DETERMINERS, word) || word.starts_with('`') || word.starts_with(|c: char| c.is_ascii_digit())
}

fn has(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|known| known == word)
}

/// Splits a sentence into words in lower case. Code becomes a word that begins with a backtick, and a mark after the
/// first word a word of its own.
fn words(sentence: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in sentence.split('`').enumerate() {
        if index % 2 == 1 {
            words.push("`code`".to_owned());
            continue;
        }
        for word in part.split(|c: char| !c.is_alphanumeric() && !"'-_,:".contains(c)) {
            let is_first = words.is_empty();
            let letters = word.trim_matches(|c: char| !c.is_alphanumeric()).trim_end_matches("'s");
            match letters {
                "" => {}
                code if code.contains('_') => words.push("`code`".to_owned()),
                letters => words.push(letters.to_lowercase()),
            }
            if is_first && word.ends_with([',', ':']) {
                words.push(",".to_owned());
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_verbs() {
        for sentence in [
            "Returns the number of bytes.",
            "Limits the requests of a client.",
            "Load-tests a server: it is measured.",
            "Maps a failed write to how the connection ended.",
            "A gate that answers.",
            "The bytes received so far.",
            "Create a connection.",
            "The key to use.",
            "Hashes `key`.",
            "Optionally adds a layer.",
            "Counts replies.",
            "The same bytes give the same number.",
        ] {
            assert!(is_in(sentence), "{sentence}");
        }
    }

    #[test]
    fn noun_phrases_have_none() {
        for phrase in [
            "A limit by its name.",
            "Rules by name.",
            "Limits of a policy.",
            "Any rule.",
            "Datagrams, many at a time.",
        ] {
            assert!(!is_in(phrase), "{phrase}");
        }
    }
}
