"""Exported member files in the formats of other newsletter products, with invented people."""

MAILCHIMP = (
    "Email Address,First Name,Last Name,Address,Phone Number,Birthday,MEMBER_RATING,OPTIN_TIME,"
    "OPTIN_IP,CONFIRM_TIME,CONFIRM_IP,LATITUDE,LONGITUDE,GMTOFF,DSTOFF,TIMEZONE,CC,REGION,"
    "LAST_CHANGED,LEID,EUID,NOTES,TAGS\n"
    'ada@{d},Ada,Byron,"1 Road, Town",+44 20 7946 0000,12/10,4,2024-01-02 10:00:00,192.0.2.1,'
    "2024-01-02 10:01:00,192.0.2.2,51.5074,-0.1278,0,1,Europe/London,GB,England,"
    '2024-02-01 09:00:00,101,aa11,"Met, at a fair","""vip"",""gold customers"""\n'
    "bob@{d},Bob,,,,,2,,,2024-01-03 10:01:00,198.51.100.9,,,,,,US,,2024-02-01 09:00:00,102,bb22,,\n"
)
SUBSTACK = (
    "email,active_subscription,expiry,plan,email_disabled,created_at,first_payment_at,"
    "stripe_customer_id,total_emails_opened,subscription_source\n"
    "ada@{d},true,2037-07-01T16:20:44.000Z,yearly,false,2025-01-01T00:00:00.000Z,"
    "2025-01-02T00:00:00.000Z,cus_1,12,web\n"
    "bob@{d},false,,other,false,2024-01-01T00:00:00.000Z,,,3,import\n"
)
GHOST = (
    "id,email,name,note,subscribed_to_emails,complimentary_plan,stripe_customer_id,created_at,"
    "deleted_at,labels,tiers\n"
    '64a,ada@{d},Ada Byron,"a\nnote",true,false,cus_1,2024-01-01T00:00:00.000Z,,"vip,Friends",\n'
    "64b,bob@{d},,,true,true,,2024-01-05T00:00:00.000Z,,,Supporters\n"
)
BEEHIIV = (
    "email,First Name,Last Name,status,tier,created_at,stripe_customer_id,utm_source,utm_medium,"
    "utm_campaign,referring_site,referral_code,Favourite colour\n"
    "ada@{d},Ann,Lee,active,free,2024-03-24 10:23:10 UTC,,twitter,social,launch,"
    "https://example.com/,abc1,blue\n"
    "bob@{d},,,active,premium,2024-03-25 10:23:10 UTC,cus_2,,,,,abc2,\n"
)
BUTTONDOWN = (
    "email,notes,metadata,tags,referrer_url,creation_date,secondary_id,subscriber_type,source,"
    "utm_campaign,ip_address\n"
    'ada@{d},"likes, commas","{{""a"": 1}}","news,vip",https://example.com/join,2024-02-02,1,regular,'
    "embedded,launch,192.0.2.44\n"
    "bob@{d},,,,,2024-02-03,2,premium,api,,\n"
)
KIT = (
    "id,email,first_name,status,created_at,tags,Company,Location\n"
    '1,ada@{d},Ada,active,2024-01-01 09:00:00 UTC,"vip, webinar",Acme,Rome\n'
    "2,bob@{d},,active,2024-01-02 09:00:00 UTC,,,\n"
)
# Maps the name of each newsletter product to a member file that the product could have exported.
# Tests replace ``{d}`` in a member file with the domain of the e-mail addresses.
PRODUCT_FILES = {
    "mailchimp": MAILCHIMP,
    "substack": SUBSTACK,
    "ghost": GHOST,
    "beehiiv": BEEHIIV,
    "buttondown": BUTTONDOWN,
    "kit": KIT,
}
