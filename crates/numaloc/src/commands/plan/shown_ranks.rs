//! What mappings of ranks to the hosts of a cluster are worth, as text.

use numaloc_analysis::verdict::time;
use numaloc_model::number;
use numaloc_plan::RankRanking;
use numaloc_plan::ranks::RankWorth;

/// Links that are named.
const LINKS: usize = 3;

/// The candidates, what the plan saves, and the busiest links.
pub(super) fn text(ranking: &RankRanking) -> String {
    let what = match ranking.is_whole {
        true => "seconds of the run",
        false => "seconds of its messages (the profile has no times)",
    };
    let mut out = format!(
        "\nranks on hosts, {what}, by the model of networks:\n  {:<14} {:>10} {:>10} {:>24} {:>13}  busiest link\n",
        "threads", "time", "saves", "between", "between hosts"
    );
    let row = |name: &str, worth: &RankWorth, saves: [String; 2]| {
        let [saves, between] = saves;
        let link = worth.busiest.first().map_or_else(
            || "-".to_owned(),
            |busy| format!("{}: {}", busy.name, time(busy.seconds)),
        );
        format!(
            "  {name:<14} {:>10} {saves:>10} {between:>24} {:>13}  {link}\n",
            time(worth.seconds),
            number::fixed(100.0 * worth.between_hosts, 1) + " %",
        )
    };
    out += &row("(as it is)", &ranking.as_it_is, Default::default());
    for rated in &ranking.candidates {
        let gain = ranking.gain_of(&rated.worth);
        let between = format!("{} and {}", signed(gain.least), signed(gain.most));
        out += &row(rated.policy, &rated.worth, [signed(gain.seconds), between]);
    }
    out += &format!("  as it is: {}\n", ranking.layout);
    if let Some(name) = ranking.assumed {
        out += &format!(
            "  links: those of {name}, which is only assumed (--network interconnect=NAME, or [cluster.links])\n"
        );
    }
    out + &answer(ranking) + &links(ranking)
}

/// A time with its sign.
fn signed(value: f64) -> String {
    match value {
        v if v < 0.0 => format!("-{}", time(-v)),
        v => time(v),
    }
}

fn answer(ranking: &RankRanking) -> String {
    let (now, plan, gain) = (&ranking.as_it_is, ranking.plan(), ranking.gain());
    let chosen = ranking.candidates[ranking.chosen].policy;
    let percent = |part: f64| number::fixed(100.0 * part / now.seconds.max(f64::MIN_POSITIVE), 0);
    if ranking.saves() {
        return format!(
            "  {chosen}: as it is {}, with this plan {}; saves {} ({} %), between {} and {}\n",
            time(now.seconds),
            time(plan.seconds),
            time(gain.seconds),
            percent(gain.seconds),
            time(gain.least),
            time(gain.most)
        );
    }
    if ranking.loses() {
        return format!(
            "  {chosen}: as it is {}, with this plan {}; loses {} ({} %)\n",
            time(now.seconds),
            time(plan.seconds),
            time(-gain.seconds),
            percent(-gain.seconds)
        );
    }
    format!(
        "  {chosen}: as it is {}; no mapping among these is surely faster by more than {} %\n",
        time(now.seconds),
        number::fixed(100.0 * numaloc_plan::ranks::TIE, 0)
    )
}

fn links(ranking: &RankRanking) -> String {
    let named = |worth: &RankWorth| {
        let busy = worth.busiest.iter().take(LINKS);
        let names = busy.map(|busy| format!("{} {}", busy.name, time(busy.seconds)));
        names.collect::<Vec<_>>().join("; ")
    };
    let mut out = String::new();
    for (name, worth) in [("as it is", &ranking.as_it_is), ("plan", ranking.plan())] {
        if !worth.busiest.is_empty() {
            out += &format!("  busiest links, {name}: {}\n", named(worth));
        }
    }
    out
}
