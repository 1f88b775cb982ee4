#include "links.h"

#include <algorithm>

namespace chakrascope::gpu {

std::int32_t Links::add(const LinkSettings& settings) {
    Link& link = links_.emplace_back();
    link.settings = settings;
    link.credits.assign(static_cast<std::size_t>(channels()), settings.buffer_flits);
    link.ends.resize(static_cast<std::size_t>(channels()));
    link.sources.resize(kParcelKinds);
    const auto number = static_cast<std::int32_t>(links_.size()) - 1;
    for (std::int32_t channel = 0; channel < channels(); ++channel) {
        link.ends[static_cast<std::size_t>(channel)].link = number;
        link.ends[static_cast<std::size_t>(channel)].channel = channel;
    }
    return number;
}

Parcel& Links::parcel() {
    Parcel* parcel = nullptr;
    if (free_.empty()) {
        parcel = &parcels_.emplace_back();
    } else {
        parcel = free_.back();
        free_.pop_back();
        *parcel = Parcel{};
    }
    parcel->number = ++numbers_;
    return *parcel;
}

void Links::send(Parcel& parcel) {
    ++in_flight_;
    enter(link_at(parcel.way.front()).sources[parcel.kind], parcel);
}

std::int32_t Links::channel(const Parcel& parcel) const {
    const bool inside = parcel.at >= parcel.entered;
    const std::int32_t kind = parcel.kind + (inside ? kParcelKinds : 0);
    return kind * machine_.virtual_channels + (inside ? parcel.lane_in : parcel.lane_out);
}

std::uint32_t Links::bytes(const Parcel& parcel, const Link& link) const {
    return parcel.data ? kLineBytes + link.settings.header_bytes : machine_.control_bytes;
}

std::int32_t Links::flits(const Parcel& parcel) const {
    const std::uint32_t size = parcel.data ? kLineBytes : machine_.control_bytes;
    const auto flit = static_cast<std::uint32_t>(machine_.flit_bytes);
    return static_cast<std::int32_t>(std::max(1u, (size + flit - 1) / flit));
}

void Links::enter(Queue& queue, Parcel& parcel) {
    parcel.came = clock_.now();
    queue.parcels.push_back(&parcel);
    if (queue.parcels.size() == 1) wait_for_link(queue);
}

void Links::wait_for_link(Queue& queue) {
    const Parcel& parcel = *queue.parcels.front();
    const std::int32_t next = parcel.way[parcel.at];
    link_at(next).waiting.push_back(&queue);
    try_link(next);
}

bool Links::has_credit(const Link& link, const Parcel& parcel) const {
    return link.settings.buffer_flits == 0 ||
           link.credits[static_cast<std::size_t>(channel(parcel))] >= flits(parcel);
}

// Choose a link's next queue round-robin: a served queue moves to the end of the list.
Links::Queue* Links::choose(Link& link) {
    Queue* best = nullptr;
    const auto before = [&](const Parcel& a, const Parcel& b) {
        switch (link.settings.arbitration) {
            case Arbitration::RequestsFirst:
                return !a.data && b.data;
            case Arbitration::FirstCome:
                return a.came != b.came ? a.came < b.came : a.number < b.number;
            default:
                return false;
        }
    };
    for (Queue* queue : link.waiting) {
        const Parcel& parcel = *queue->parcels.front();
        if (!has_credit(link, parcel)) continue;
        if (best == nullptr || before(parcel, *best->parcels.front())) best = queue;
    }
    return best;
}

void Links::try_link(std::int32_t number) {
    Link& link = link_at(number);
    if (link.moving != nullptr) return;
    Queue* queue = choose(link);
    if (queue == nullptr) return;
    link.waiting.erase(std::find(link.waiting.begin(), link.waiting.end(), queue));
    Parcel& parcel = *queue->parcels.front();
    link.moving = &parcel;
    const std::uint32_t size = bytes(parcel, link);
    if (link.settings.buffer_flits > 0) {
        std::int32_t& credits = link.credits[static_cast<std::size_t>(channel(parcel))];
        credits -= flits(parcel);
        least_credit_ = std::min(least_credit_, static_cast<double>(credits) / link.settings.buffer_flits);
    }
    const double speed = link.settings.bytes_per_ns;
    const Fs time = speed > 0 ? to_fs(size / speed) : 0;
    link.use.bytes += size;
    link.use.lines += 1;
    link.use.busy += time;
    link.use.queued += clock_.now() - parcel.came;
    clock_.post<&Links::gone>(time, this, queue);
}

// A queue's first parcel has passed its link, so its buffer space is free again.
void Links::gone(Queue* queue) {
    Parcel& parcel = *queue->parcels.front();
    const std::int32_t number = parcel.way[parcel.at];
    Link& link = link_at(number);
    link.moving = nullptr;
    queue->parcels.pop_front();
    if (queue->link >= 0 && link_at(queue->link).settings.buffer_flits > 0) {
        Return* credit = nullptr;
        if (free_returns_.empty()) {
            credit = &returns_.emplace_back();
        } else {
            credit = free_returns_.back();
            free_returns_.pop_back();
        }
        *credit = {queue->link, queue->channel, flits(parcel)};
        clock_.post<&Links::give_back>(link_at(queue->link).settings.latency, this, credit);
    }
    if (parcel.at == parcel.leaves && parcel.left) parcel.left();
    clock_.post<&Links::come>(link.settings.latency, this, &parcel);
    if (!queue->parcels.empty()) wait_for_link(*queue);
    try_link(number);
}

void Links::come(Parcel* parcel) {
    Link& link = link_at(parcel->way[parcel->at]);
    const std::int32_t taken = channel(*parcel);
    const Return credit{parcel->way[parcel->at], taken, flits(*parcel)};
    if (++parcel->at < parcel->way.size()) {
        if (!link.settings.to_switch) return enter(link.ends[static_cast<std::size_t>(taken)], *parcel);
        enter(link_at(parcel->way[parcel->at]).sources[parcel->kind], *parcel);
        return restore(credit);
    }
    --in_flight_;
    const auto arrived = std::move(parcel->arrived);
    free_.push_back(parcel);
    if (link.settings.buffer_flits > 0) restore(credit);
    arrived();
}

void Links::give_back(Return* credit) {
    const Return returned = *credit;
    free_returns_.push_back(credit);
    restore(returned);
}

void Links::restore(const Return& credit) {
    Link& link = link_at(credit.link);
    std::int32_t& credits = link.credits[static_cast<std::size_t>(credit.channel)];
    credits += credit.flits;
    most_credit_ = std::max(most_credit_, static_cast<double>(credits) / link.settings.buffer_flits);
    try_link(credit.link);
}

}  // namespace chakrascope::gpu
