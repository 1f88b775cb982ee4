#include "sharing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace chakrascope::engine::flow {
namespace {

// Answers are solved for again until none of them takes another such share of a link.
constexpr double kAnswerTolerance = 1e-3;
constexpr double kManyTolerance = 5e-3;
constexpr std::size_t kMany = 1000;
constexpr int kMostPasses = 12;
// What answers leave of a link at least.
constexpr double kLeast = 0.05;
// Rates that differ by less are the same.
constexpr double kSame = 1e-7;

std::vector<double> capacities(const std::vector<Line>& lines) {
    std::vector<double> result;
    for (const Line& line : lines) result.push_back(line.capacity);
    return result;
}

}  // namespace

Sharing::Sharing(const std::vector<Line>& lines) : links_(lines.size()), clusters_(capacities(lines)) {
    for (std::size_t i = 0; i < lines.size(); ++i) links_[i].line = lines[i];
}

std::uint32_t Sharing::add(std::span<const std::uint32_t> forward, std::span<const std::uint32_t> back,
                           const Window& window) {
    Bundle bundle;
    bundle.first = static_cast<std::uint32_t>(hops_.size());
    bundle.forward = static_cast<std::uint32_t>(forward.size());
    bundle.back = static_cast<std::uint32_t>(back.size());
    Limits limits{window, std::numeric_limits<double>::infinity(), kNone};
    for (const std::uint32_t link : forward) limits.line = std::min(limits.line, links_[link].line.capacity);
    bundle.most = window.rate(limits.line, 0);
    bundle.lag = window.lag();
    hops_.insert(hops_.end(), forward.begin(), forward.end());
    hops_.insert(hops_.end(), back.begin(), back.end());
    slots_.resize(hops_.size());
    bundles_.push_back(bundle);
    limits_.push_back(limits);
    return static_cast<std::uint32_t>(bundles_.size() - 1);
}

double Sharing::load(std::uint32_t link) const {
    double sum = links_[link].answers;
    for (const std::uint32_t user : links_[link].users) sum += bundles_[user].flows * bundles_[user].rate;
    return sum;
}

void Sharing::set_queue(std::uint32_t bundle, std::uint32_t link) {
    limits_[bundle].queue = link;
    affect(bundle);
}

void Sharing::affect(std::uint32_t bundle) {
    if (limits_[bundle].affected) return;
    limits_[bundle].affected = true;
    affected_.push_back(bundle);
}

void Sharing::note_queues() {
    for (const std::uint32_t link : clusters_.take_changed()) {
        for (const std::uint32_t bundle : links_[link].answered) affect(bundle);
        for (const std::uint32_t bundle : links_[link].users) affect(bundle);
    }
    for (const std::uint32_t bundle : affected_) {
        limits_[bundle].affected = false;
        limit(bundle);
    }
    affected_.clear();
}

// Bring what limits a bundle on its own up to date with what its answers wait.
void Sharing::limit(std::uint32_t number) {
    Bundle& bundle = bundles_[number];
    const Limits& limits = limits_[number];
    const double wait = clusters_.wait(limits.window, limits.queue, back(number));
    const double most = limits.window.rate(limits.line, wait);
    if (std::abs(most - bundle.most) <= kSame * most) return;
    if (bundle.flows > 0) touch(number);
    for (const std::uint32_t link : forward(number))
        links_[link].demand += bundle.flows * (most - bundle.most);
    bundle.most = most;
}

void Sharing::mark(std::uint32_t link) {
    if (links_[link].dirty) return;
    links_[link].dirty = true;
    dirty_.push_back(link);
}

void Sharing::change(std::uint32_t number, int by) {
    Bundle& bundle = bundles_[number];
    if (bundle.flows == 0) enter(number);
    bundle.flows += by;
    for (const std::uint32_t link : forward(number)) {
        links_[link].demand += by * bundle.most;
        mark(link);
    }
    for (const std::uint32_t link : back(number)) links_[link].answerers += by;
    if (bundle.flows == 0) exit(number);
    touch(number);
}

void Sharing::touch(std::uint32_t number) {
    Bundle& bundle = bundles_[number];
    if (bundle.touched) return;
    bundle.touched = true;
    touched_.push_back(number);
}

// The list of the link at a hop that a bundle is in.
std::vector<std::uint32_t>& Sharing::list(std::uint32_t hop, const Bundle& bundle) {
    Link& link = links_[hops_[hop]];
    return hop < bundle.first + bundle.forward ? link.users : link.answered;
}

void Sharing::enter(std::uint32_t number) {
    ++active_;
    const Bundle& bundle = bundles_[number];
    for (std::uint32_t hop = bundle.first; hop < bundle.first + bundle.forward + bundle.back; ++hop) {
        std::vector<std::uint32_t>& bundles = list(hop, bundle);
        slots_[hop] = static_cast<std::uint32_t>(bundles.size());
        bundles.push_back(number);
    }
}

void Sharing::exit(std::uint32_t number) {
    --active_;
    const Bundle& bundle = bundles_[number];
    const std::uint32_t middle = bundle.first + bundle.forward;
    for (std::uint32_t hop = bundle.first; hop < middle + bundle.back; ++hop) {
        std::vector<std::uint32_t>& bundles = list(hop, bundle);
        const std::uint32_t last = bundles.back();
        bundles[slots_[hop]] = last;
        const Bundle& moved = bundles_[last];
        const std::uint32_t begin = hop < middle ? moved.first : moved.first + moved.forward;
        const std::uint32_t end = hop < middle ? moved.first + moved.forward : begin + moved.back;
        for (std::uint32_t other = begin; other < end; ++other)
            if (hops_[other] == hops_[hop]) slots_[other] = slots_[hop];
        bundles.pop_back();
        if (links_[hops_[hop]].users.empty()) links_[hops_[hop]].demand = 0;  // rounding does not add up
    }
}

const std::vector<std::uint32_t>& Sharing::solve() {
    for (const std::uint32_t bundle : changed_) bundles_[bundle].changed = false;
    changed_.clear();
    note_queues();
    for (int pass = 0; pass < kMostPasses && !(dirty_.empty() && touched_.empty()); ++pass) {
        gather();
        prepare();
        fill();
        publish();
    }
    return changed_;
}

void Sharing::gather() {
    ++epoch_;
    part_bundles_.clear();
    part_links_.clear();
    for (const std::uint32_t bundle : touched_) {
        bundles_[bundle].touched = false;
        gather_bundle(bundle);
    }
    touched_.clear();
    for (const std::uint32_t link : dirty_) {
        links_[link].dirty = false;
        links_[link].counted = links_[link].answers;
        if (reaches(links_[link])) gather_link(link);
    }
    dirty_.clear();
    // Both lists grow while they are gone through; what a slack link carries does not reach across it.
    for (std::size_t next_link = 0, next = 0;
         next < part_bundles_.size() || next_link < part_links_.size();) {
        if (next_link < part_links_.size()) {
            for (const std::uint32_t user : links_[part_links_[next_link]].users) gather_bundle(user);
            ++next_link;
            continue;
        }
        for (const std::uint32_t link : forward(part_bundles_[next])) {
            if (reaches(links_[link])) gather_link(link);
        }
        ++next;
    }
}

void Sharing::gather_link(std::uint32_t link) {
    links_[link].epoch = epoch_;
    part_links_.push_back(link);
}

void Sharing::gather_bundle(std::uint32_t bundle) {
    if (bundles_[bundle].epoch == epoch_) return;
    bundles_[bundle].epoch = epoch_;
    part_bundles_.push_back(bundle);
}

// Of links that are full alike, those that leave hosts come first: senders wait there, and queues stay empty.
double Sharing::level_of(const Link& link) {
    const double level = std::max(link.left, 0.0) / link.sharers;
    return link.line.leaves_host ? level * (1 - kSame) : level;
}

void Sharing::prepare() {
    levels_.clear();
    caps_.clear();
    for (const std::uint32_t number : part_bundles_) {
        Bundle& bundle = bundles_[number];
        bundle.settled = bundle.flows == 0;
        if (!bundle.settled) caps_.emplace_back(bundle.most, number);
    }
    if (!std::is_sorted(caps_.begin(), caps_.end(),
                        [](const auto& a, const auto& b) { return a.first < b.first; }))
        std::sort(caps_.begin(), caps_.end());
    for (const std::uint32_t number : part_links_) {
        Link& link = links_[number];
        link.binds = false;
        link.counted = link.answers;
        link.left = std::max(link.line.capacity - link.answers, kLeast * link.line.capacity);
        link.sharers = 0;
        for (const std::uint32_t user : link.users) link.sharers += bundles_[user].flows;
        if (link.sharers > 0) levels_.push_back({level_of(link), number});
    }
    std::make_heap(levels_.begin(), levels_.end());
}

// The lowest level at which a link is full. Levels only rise while flows settle at lower ones, so an entry
// that is out of date is put back with its present level.
bool Sharing::lowest(Level& level) {
    while (!levels_.empty()) {
        level = levels_.front();
        const Link& link = links_[level.link];
        std::pop_heap(levels_.begin(), levels_.end());
        if (link.sharers == 0) {
            levels_.pop_back();
            continue;
        }
        const double now = level_of(link);
        if (now <= level.rate * (1 + 1e-9)) {
            levels_.back() = level;
            std::push_heap(levels_.begin(), levels_.end());
            return true;
        }
        levels_.back() = {now, level.link};
        std::push_heap(levels_.begin(), levels_.end());
    }
    level.rate = std::numeric_limits<double>::infinity();
    return false;
}

void Sharing::fill() {
    std::size_t cap = 0;
    Level level{};
    for (;;) {
        while (cap < caps_.size() && bundles_[caps_[cap].second].settled) ++cap;
        if (cap == caps_.size()) return;
        lowest(level);
        if (caps_[cap].first <= level.rate * (1 + 1e-9)) {
            freeze(caps_[cap].second, bundles_[caps_[cap].second].most, kNone);
            continue;
        }
        Link& link = links_[level.link];
        link.binds = true;
        const double rate = std::max(link.left, 0.0) / link.sharers;
        for (const std::uint32_t user : link.users)
            if (!bundles_[user].settled) freeze(user, rate, level.link);
    }
}

void Sharing::freeze(std::uint32_t number, double rate, std::uint32_t binding) {
    Bundle& bundle = bundles_[number];
    bundle.settled = true;
    bundle.binding = binding;
    if (std::abs(rate - bundle.rate) > 1e-12 * rate) {
        bundle.rate = rate;
        if (!bundle.changed) {
            bundle.changed = true;
            changed_.push_back(number);
        }
    }
    for (const std::uint32_t hop : forward(number)) {
        Link& link = links_[hop];
        if (link.epoch != epoch_) continue;
        link.left -= bundle.flows * rate;
        link.sharers -= bundle.flows;
    }
}

// Tell the links back what answers they carry now; those that carry another amount are solved for again.
void Sharing::publish() {
    const double tolerance = part_bundles_.size() > kMany ? kManyTolerance : kAnswerTolerance;
    for (const std::uint32_t number : part_bundles_) {
        Bundle& bundle = bundles_[number];
        if (bundle.flows == 0) bundle.rate = 0;
        const double sum = bundle.flows * bundle.rate * std::max(1 - bundle.lag * bundle.rate, 0.0);
        const double more = sum - bundle.answered;
        if (more == 0) continue;
        bundle.answered = sum;
        for (const std::uint32_t hop : back(number)) {
            Link& link = links_[hop];
            link.answers += more * link.line.answer_share;
            if (link.answerers == 0) link.answers = 0;  // and so rounding does not add up
            if (!link.users.empty() &&
                std::abs(link.answers - link.counted) > tolerance * link.line.capacity) {
                mark(hop);
            }
        }
    }
}

}  // namespace chakrascope::engine::flow
