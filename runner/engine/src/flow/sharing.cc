#include "sharing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace chakrascope::engine::flow {
namespace {

// The rates are solved again until the fraction of a link's capacity that acknowledgements take changes by
// less than this.
constexpr double kAnswerTolerance = 1e-3;
constexpr double kManyTolerance = 5e-3;
constexpr std::size_t kMany = 1000;
constexpr int kMostPasses = 12;
// The minimum fraction of a link's capacity that acknowledgements leave for data.
constexpr double kLeast = 0.05;
// Rates of flows count as equal if they differ by less than this fraction.
constexpr double kSameFlow = 1e-7;
// With many flows, rates of acknowledgements count as equal if they differ by less than this fraction.
constexpr double kSameAnswers = 1e-3;
// If a search for independent parts puts more than half of at least kWhole bundles into one part, the next
// kWholePasses solutions include all bundles without a search.
constexpr std::size_t kWhole = 256;
constexpr int kWholePasses = 16;
constexpr std::size_t kPrefetched = 8;
// A bundle whose rate changed in this pass (kMoved) or this solution (kChanged).
constexpr std::uint8_t kMoved = 1;
constexpr std::uint8_t kChanged = 2;

std::vector<double> capacities(const std::vector<Line>& lines) {
    std::vector<double> result;
    for (const Line& line : lines) result.push_back(line.capacity);
    return result;
}

}  // namespace

Sharing::Sharing(const std::vector<Line>& lines)
    : links_(lines.size()),
      filling_(lines.size()),
      clusters_(capacities(lines)),
      least_cap_(std::numeric_limits<double>::infinity()) {
    for (std::size_t i = 0; i < lines.size(); ++i) links_[i].line = lines[i];
}

void Sharing::add() {
    bundles_.emplace_back();
    limits_.emplace_back();
    answers_.emplace_back();
    fixed_.push_back(0);
    marks_.push_back(0);
}

void Sharing::set_path(std::uint32_t number, std::span<const std::uint32_t> forward,
                       std::span<const std::uint32_t> back, const Window& window) {
    Bundle& bundle = bundles_[number];
    Limits& limits = limits_[number];
    const auto length = static_cast<std::uint32_t>(forward.size() + back.size());
    if (length > limits.room) {
        bundle.first = static_cast<std::uint32_t>(hops_.size());
        limits.room = length;
        hops_.resize(hops_.size() + length);
        slots_.resize(hops_.size());
    }
    bundle.forward = static_cast<std::uint16_t>(forward.size());
    bundle.back = static_cast<std::uint16_t>(back.size());
    std::copy(back.begin(), back.end(),
              std::copy(forward.begin(), forward.end(), hops_.begin() + bundle.first));
    if (forward.size() <= kNear) std::copy(forward.begin(), forward.end(), bundle.near);
    limits.window = window;
    limits.line = std::numeric_limits<double>::infinity();
    for (const std::uint32_t link : forward) limits.line = std::min(limits.line, links_[link].line.capacity);
    answers_[number].lag = window.lag();
    bundle.most = window.rate(limits.line, 0);
    least_cap_ = std::min(least_cap_, bundle.most);
}

void Sharing::set_line(std::uint32_t link, const Line& line) {
    links_[link].line = line;
    clusters_.set_capacity(link, line.capacity);
}

void Sharing::set_queue(std::uint32_t bundle, std::uint32_t link) {
    limits_[bundle].queue = link;
    affect(bundle);
}

// Note that changed queues affect a bundle. Queues do not limit flows that fit into one window.
void Sharing::affect(std::uint32_t bundle) {
    Limits& limits = limits_[bundle];
    if (limits.affected || limits.window.count <= 1) return;
    limits.affected = true;
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

// Update the rate limit of a bundle: the window divided by the round-trip time, which includes the waits of
// acknowledgements.
void Sharing::limit(std::uint32_t number) {
    Bundle& bundle = bundles_[number];
    const Limits& limits = limits_[number];
    const double wait = clusters_.wait(limits.window, limits.queue, back(number));
    const double most = limits.window.rate(limits.line, wait);
    if (std::abs(most - bundle.most) <= kSameFlow * most) return;
    if (bundle.flows > 0) touch(number);
    for (const std::uint32_t link : forward(number))
        links_[link].demand += bundle.flows * (most - bundle.most);
    bundle.most = most;
    least_cap_ = std::min(least_cap_, most);
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
    for (const std::uint32_t hop : forward(number)) {
        Link& link = links_[hop];
        link.demand += by * bundle.most;
        link.flows += by;
        mark(hop);
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

// Return the list that contains the bundle at the link of the given hop.
std::vector<std::uint32_t>& Sharing::list(std::uint32_t hop, const Bundle& bundle) {
    Link& link = links_[hops_[hop]];
    return hop < bundle.first + bundle.forward ? link.users : link.answered;
}

void Sharing::enter(std::uint32_t number) {
    limits_[number].place = static_cast<std::uint32_t>(active_.size());
    active_.push_back(number);
    const Bundle& bundle = bundles_[number];
    for (std::uint32_t hop = bundle.first; hop < bundle.first + bundle.forward + bundle.back; ++hop) {
        std::vector<std::uint32_t>& bundles = list(hop, bundle);
        slots_[hop] = static_cast<std::uint32_t>(bundles.size());
        bundles.push_back(number);
    }
}

void Sharing::exit(std::uint32_t number) {
    const std::uint32_t gap = limits_[number].place;
    active_[gap] = active_.back();
    limits_[active_[gap]].place = gap;
    active_.pop_back();
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
        if (links_[hops_[hop]].users.empty()) links_[hops_[hop]].demand = 0;  // no rounding errors
    }
}

const std::vector<std::uint32_t>& Sharing::solve() {
    changed_.clear();
    note_queues();
    bool sorted = true;
    for (int pass = 0; pass < kMostPasses && !(dirty_.empty() && touched_.empty()); ++pass) {
        ++pass_;
        joined_.swap(touched_);
        touched_.clear();
        for (const std::uint32_t bundle : joined_) bundles_[bundle].touched = false;
        whole_ = active_.size() >= kWhole && whole_passes_ > 0;
        sorted = sorted && !whole_;
        whole_ ? gather_all() : gather();
        prepare();
        fill();
        publish();
    }
    if (!sorted) sort_changed();
    for (const std::uint32_t bundle : changed_) marks_[bundle] = 0;
    return changed_;
}

// Collect the bundles with changed rates, in memory order.
void Sharing::sort_changed() {
    changed_.clear();
    for (std::uint32_t bundle = 0; bundle < marks_.size(); ++bundle)
        if (marks_[bundle] & kChanged) changed_.push_back(bundle);
}

void Sharing::gather_all() {
    --whole_passes_;
    part_links_.clear();
    for (const std::uint32_t link : dirty_) links_[link].dirty = false;
    dirty_.clear();
    for (std::uint32_t link = 0; link < links_.size(); ++link)
        if (links_[link].flows > 0 && reaches(link)) gather_link(link);
    unfixed_ = active_.size();
    part_cap_ = least_cap_;
}

void Sharing::gather() {
    part_bundles_.clear();
    part_links_.clear();
    unfixed_ = 0;
    part_cap_ = std::numeric_limits<double>::infinity();
    for (const std::uint32_t bundle : joined_) gather_bundle(bundle);
    for (const std::uint32_t link : dirty_) {
        links_[link].dirty = false;
        links_[link].counted = links_[link].answers;
        if (reaches(link)) gather_link(link);
    }
    dirty_.clear();
    // The lists grow during the scan. A link with spare capacity does not couple its bundles.
    for (std::size_t next_link = 0, next = 0;
         next < part_bundles_.size() || next_link < part_links_.size();) {
        if (next_link < part_links_.size()) {
            for (const std::uint32_t user : links_[part_links_[next_link]].users) gather_bundle(user);
            ++next_link;
            continue;
        }
        for (const std::uint32_t link : forward(part_bundles_[next])) {
            if (reaches(link)) gather_link(link);
        }
        ++next;
    }
    if (2 * part_bundles_.size() > active_.size()) whole_passes_ = kWholePasses;
}

void Sharing::gather_link(std::uint32_t link) {
    filling_[link].pass = pass_;
    part_links_.push_back(link);
}

void Sharing::gather_bundle(std::uint32_t number) {
    Bundle& bundle = bundles_[number];
    if (bundle.gathered == pass_) return;
    bundle.gathered = pass_;
    if (bundle.flows == 0) {
        fixed_[number] = pass_;
    } else {
        ++unfixed_;
        part_cap_ = std::min(part_cap_, bundle.most);
    }
    part_bundles_.push_back(number);
}

// Return the rate at which a link is full. On a tie, a link that leaves a host comes first, because its flows
// wait at the sender and cause no queue.
double Sharing::level_of(std::uint32_t link) const {
    const Filling& filling = filling_[link];
    const double level = std::max(filling.left, 0.0) / filling.sharers;
    return links_[link].line.leaves_host ? level * (1 - kSameFlow) : level;
}

void Sharing::prepare() {
    levels_.clear();
    caps_.clear();
    caps_known_ = false;
    moved_.clear();
    for (const std::uint32_t number : part_links_) {
        Link& link = links_[number];
        link.binds = false;
        link.counted = link.answers;
        Filling& filling = filling_[number];
        filling.left = std::max(link.line.capacity - link.answers, kLeast * link.line.capacity);
        filling.sharers = link.flows;
        if (filling.sharers > 0) levels_.push_back({level_of(number), number});
    }
    std::make_heap(levels_.begin(), levels_.end());
}

// Find the lowest level (rate per flow) at which a link is full. The level of a link only rises when flows
// are fixed below it, so an outdated heap entry is inserted again with the current level.
bool Sharing::lowest(Level& level) {
    while (!levels_.empty()) {
        level = levels_.front();
        std::pop_heap(levels_.begin(), levels_.end());
        if (filling_[level.number].sharers == 0) {
            levels_.pop_back();
            continue;
        }
        const double now = level_of(level.number);
        levels_.back() = {std::max(now, level.rate), level.number};
        std::push_heap(levels_.begin(), levels_.end());
        if (now <= level.rate * (1 + 1e-9)) return true;
    }
    level.rate = std::numeric_limits<double>::infinity();
    return false;
}

void Sharing::fill() {
    Level level{};
    while (unfixed_ > 0) {
        const bool full = lowest(level);
        if (part_cap_ <= level.rate * (1 + 1e-9)) {
            if (!caps_known_) {
                find_caps();
                continue;
            }
            fill_cap();
            continue;
        }
        if (!full) return;
        fill_link(level.number);
    }
}

void Sharing::fill_link(std::uint32_t number) {
    links_[number].binds = true;
    const double rate = std::max(filling_[number].left, 0.0) / filling_[number].sharers;
    const std::vector<std::uint32_t>& users = links_[number].users;
    for (std::size_t i = 0; i < users.size(); ++i) {
        if (i + kPrefetched < users.size() && fixed_[users[i + kPrefetched]] != pass_)
            __builtin_prefetch(&bundles_[users[i + kPrefetched]], 1);
        if (fixed_[users[i]] != pass_) freeze(users[i], rate, number);
    }
}

// Build a heap of the rate limits of bundles, when the limits are first needed.
void Sharing::find_caps() {
    caps_known_ = true;
    const std::vector<std::uint32_t>& part = whole_ ? active_ : part_bundles_;
    if (whole_) least_cap_ = std::numeric_limits<double>::infinity();
    for (const std::uint32_t number : part) {
        const Bundle& bundle = bundles_[number];
        if (whole_) least_cap_ = std::min(least_cap_, bundle.most);
        if (fixed_[number] != pass_) caps_.push_back({bundle.most, number});
    }
    std::make_heap(caps_.begin(), caps_.end());
    part_cap_ = caps_.front().rate;
}

// Fix the rate of the bundle with the lowest limit. At this rate, no link is full yet.
void Sharing::fill_cap() {
    const Level cap = caps_.front();
    std::pop_heap(caps_.begin(), caps_.end());
    caps_.pop_back();
    part_cap_ = caps_.empty() ? std::numeric_limits<double>::infinity() : caps_.front().rate;
    if (fixed_[cap.number] != pass_) freeze(cap.number, cap.rate, kNone);
}

void Sharing::freeze(std::uint32_t number, double rate, std::uint32_t binding) {
    Bundle& bundle = bundles_[number];
    fixed_[number] = pass_;
    bundle.binding = binding;
    --unfixed_;
    if (std::abs(rate - bundle.rate) > 1e-12 * rate) {
        bundle.rate = rate;
        if (!whole_) {
            moved_.push_back(number);
            if (!(marks_[number] & kChanged)) changed_.push_back(number);
        }
        marks_[number] = kMoved | kChanged;
    }
    const double all = bundle.flows * rate;
    const std::uint32_t* hop = bundle.forward <= kNear ? bundle.near : hops_.data() + bundle.first;
    for (const std::uint32_t* end = hop + bundle.forward; hop < end; ++hop) {
        Filling& filling = filling_[*hop];
        if (filling.pass != pass_) continue;
        filling.left -= all;
        filling.sharers -= bundle.flows;
    }
}

// Update the load of acknowledgements on links; links with a changed load are solved again.
void Sharing::publish() {
    const bool many = (whole_ ? active_.size() : part_bundles_.size()) > kMany;
    const double tolerance = many ? kManyTolerance : kAnswerTolerance;
    const double same = many ? kSameAnswers : 0;
    for (const std::uint32_t bundle : joined_) tell_answers(bundle, tolerance, same);
    for (const std::uint32_t bundle : moved_) tell_answers(bundle, tolerance, same);
    if (!whole_) return;
    for (std::uint32_t bundle = 0; bundle < marks_.size(); ++bundle) {
        if (!(marks_[bundle] & kMoved)) continue;
        marks_[bundle] = kChanged;
        tell_answers(bundle, tolerance, same);
    }
}

void Sharing::tell_answers(std::uint32_t number, double tolerance, double same) {
    Bundle& bundle = bundles_[number];
    Answers& answers = answers_[number];
    if (bundle.flows == 0) bundle.rate = 0;
    const double sum = bundle.flows * bundle.rate * std::max(1 - answers.lag * bundle.rate, 0.0);
    const double more = sum - answers.counted;
    if (more == 0 || (sum > 0 && std::abs(more) <= same * sum)) return;
    answers.counted = sum;
    for (const std::uint32_t hop : back(number)) {
        Link& link = links_[hop];
        link.answers += more * link.line.answer_share;
        if (link.answerers == 0) link.answers = 0;  // avoids accumulated rounding errors
        if (link.flows > 0 && std::abs(link.answers - link.counted) > tolerance * link.line.capacity)
            mark(hop);
    }
}

}  // namespace chakrascope::engine::flow
